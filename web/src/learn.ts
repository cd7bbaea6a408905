import { mount } from 'svelte'
import './styles/base.css'
import Page from './views/Learn.svelte'

mount(Page, { target: document.getElementById('app')! })
