// A look at the end of a thread of the list: Space on the chosen row, or the button of the row under the pointer.

import { $, $$, tell, unreachable } from './dom.js'
import { notify } from './notice.js'

const dialog = $('#peek')
const linkOf = row => row && $('.thread-link:not(.folded)', row)
let row = null

// peek shows the end of the thread of a row.
export async function peek(at) {
  const link = linkOf(at)
  if (!link || !dialog) return false
  row = at
  let words = ''
  try {
    const answer = await fetch(link.pathname + '/peek', { headers: { 'Datastar-Request': 'true' } })
    const text = await answer.text()
    if (answer.ok && row === at) {
      dialog.innerHTML = text
      if (!dialog.open) dialog.showModal()
      const log = $('.peek-log', dialog)
      log.scrollTop = log.scrollHeight
      log.focus({ preventScroll: true })
      tell('patched')
    } else words = answer.ok ? '' : text
  } catch { words = unreachable }
  if (words) notify(words)
  return true
}

function move(by) {
  const rows = $$('#needs .thread-item, #threads .thread-item').filter(r => r.offsetParent && linkOf(r))
  const next = rows[rows.indexOf(row) + by]
  if (next) peek(next)
}

if (dialog) {
  dialog.addEventListener('click', event => { if (event.target === dialog) dialog.close() })
  dialog.addEventListener('close', () => linkOf(row)?.focus())
  dialog.addEventListener('keydown', event => {
    event.stopPropagation() // these keys are not for the list below
    if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest('a, button, input, textarea, summary') && event.key === 'Enter') return
    const keys = { ' ': () => dialog.close(), Enter: () => $('header a', dialog).click(), j: () => move(1), k: () => move(-1) }
    if (!keys[event.key]) return
    event.preventDefault()
    keys[event.key]()
  })
  // One button goes to the row under the pointer, so that a long list has no button for each row.
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'ghost peek-button'
  button.title = 'Peek (Space)'
  button.ariaLabel = 'Peek at the thread'
  button.tabIndex = -1
  const eye = $('svg.icon').cloneNode(true)
  $('use', eye).setAttribute('href', '#i-eye')
  button.append(eye)
  button.addEventListener('click', () => peek(button.closest('.thread-item')))
  document.addEventListener('pointerover', event => {
    const over = event.pointerType === 'mouse' && event.target.closest('.thread-item')
    if (over && linkOf(over) && button.parentNode !== over) linkOf(over).after(button)
  })
}
