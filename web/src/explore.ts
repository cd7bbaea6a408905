import { mount } from 'svelte'
import './styles/base.css'
import Page from './views/Explore.svelte'

mount(Page, { target: document.getElementById('app')! })
