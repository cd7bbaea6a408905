import { mount } from 'svelte'
import './styles/base.css'
import Page from './views/Learn.svelte'

// In the offline folder the text is already there, for readers without scripts.
const target = document.getElementById('app')!
target.replaceChildren()
mount(Page, { target })
