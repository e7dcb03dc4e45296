// Keys.

import { $, $$, thread } from './dom.js'
import { notify } from './notice.js'
import { peek } from './peek.js'

const choices = () => $$(thread ? '[data-entry]' : '[data-stop]').filter(e => e.offsetParent)
function step(by) {
  const all = choices()
  if (!all.length) return
  const current = all.findIndex(e => e.classList.contains('chosen') || e === document.activeElement)
  const next = all[current < 0 ? (by > 0 && !thread ? 0 : all.length - 1) : Math.min(Math.max(current + by, 0), all.length - 1)]
  choose(next)
}
function choose(next) {
  for (const e of choices()) e.classList.remove('chosen')
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

// row returns the chosen row of a list of threads.
const row = () => document.activeElement.closest('.thread-item') ?? $('.thread-item:has(.chosen)')

// tend presses a button of the chosen row of the inbox, and chooses the next row. It returns whether a row is chosen.
function tend(name) {
  const need = row()
  if (!need?.matches('.need')) return false
  const button = $(`button[name=${name}]`, need)
  if (!button) return notify('A bot waits for an answer here. Open the thread to give one, or mute it.') ?? true
  const neighbour = need.nextElementSibling ?? need.previousElementSibling
  if (neighbour) choose($('[data-stop]', neighbour))
  button.click()
  return true
}

// next opens the next thread with something unread, from the one that is open.
function next() {
  const all = $$('#direct .place, #places .place'), at = all.findIndex(p => p.hasAttribute('aria-current'))
  const unread = [...all.slice(at + 1), ...all.slice(0, Math.max(at, 0))].find(p => p.classList.contains('unread'))
  if (unread) unread.click()
  else notify('Nothing is unread.')
}

let before = ''
document.addEventListener('keydown', event => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest('input, textarea, select, [contenteditable]')) return
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    c: () => $('#composer-text, #starter-text')?.focus(),
    n: next,
    ' ': () => peek(row()),
    e: () => tend('read') || $('#jump')?.click(),
    m: () => tend('mute') || $('#mute')?.click(),
    x: () => ((row() && $('.stop button', row())) ?? $$('.foot .stop button, .writing .stop button').at(-1))?.click(),
    '?': () => $('#sheet')?.togglePopover(),
    '/': () => { if ($('#search-text')) $('#search-text').focus(); else $('#place-search')?.click() },
    h: () => { if (before === 'g') $('.place.home')?.click() },
  }
  if (keys[event.key] && (event.key !== ' ' || row() && !event.target.closest('button, summary'))) {
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
