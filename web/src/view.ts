import { mount } from 'svelte'
import './styles/base.css'
import Page from './views/View.svelte'

mount(Page, { target: document.getElementById('app')! })
