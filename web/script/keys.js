// Keys.

import { $, $$, thread } from './dom.js'

const choices = () => $$(thread ? '[data-entry]' : '[data-stop]').filter(e => e.offsetParent)
function step(by) {
  const all = choices()
  if (!all.length) return
  const current = all.findIndex(e => e.classList.contains('chosen') || e === document.activeElement)
  const next = all[current < 0 ? (by > 0 && !thread ? 0 : all.length - 1) : Math.min(Math.max(current + by, 0), all.length - 1)]
  for (const e of all) e.classList.remove('chosen')
  next.classList.add('chosen')
  next.tabIndex = next.tabIndex < 0 ? -1 : next.tabIndex
  next.focus({ preventScroll: true })
  next.scrollIntoView({ block: 'nearest' })
}

document.addEventListener('keydown', event => {
  const menu = event.key === 'Escape' && $('details.menu[open]')
  if (!menu) return
  menu.open = false
  $('summary', menu).focus()
})

let before = ''
document.addEventListener('keydown', event => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest('input, textarea, select, [contenteditable]')) return
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    c: () => $('#composer-text, #starter-text')?.focus(),
    e: () => $('#jump')?.click(),
    x: () => $$('.foot .stop button, .writing .stop button').at(-1)?.click(),
    '?': () => $('#sheet')?.togglePopover(),
    '/': () => { if ($('#search-text')) $('#search-text').focus(); else $('#place-search')?.click() },
    h: () => { if (before === 'g') $('.place.home')?.click() },
  }
  if (keys[event.key]) {
    if (event.key !== 'h' || before === 'g') event.preventDefault()
    keys[event.key]()
  }
  before = event.key
})
// "New" links to the text box of the house's page, so the browser focuses it. On that page, the drawer with the link must
// close too.
$('[data-new]')?.addEventListener('click', () => {
  if ($('#starter-text')) $('#places-column:popover-open')?.hidePopover()
})
