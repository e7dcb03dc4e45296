// Consecutive tool calls fold behind the first one. Without this script, each of them is a line.

import { $, $$ } from './dom.js'
import { worked } from './times.js'

const log = $('#log')

// groups returns the groups of consecutive rows with tool calls of one turn or run. Anchors between these rows belong to
// entries that are shown elsewhere.
function groups() {
  const all = []
  let group = null
  for (const row of log.children) {
    if (row.matches('.entry.work')) {
      if (group?.[0].dataset.by !== row.dataset.by) all.push(group = [])
      group.push(row)
    } else if (!row.matches('.anchor, .next')) group = null
  }
  return all
}

function fold() {
  for (const rows of groups()) {
    const first = rows[0]
    for (const stray of rows.slice(1)) {
      stray.classList.remove('work-first')
      $('.work-fold', stray)?.remove()
    }
    if (rows.length < 2) {
      first.classList.remove('work-first', 'folded')
      $('.work-fold', first)?.remove()
      continue
    }
    let button = $('.work-fold', first)
    if (!button) {
      button = document.createElement('button')
      button.type = 'button'
      button.className = 'work-fold'
      button.innerHTML = '<svg class="icon" aria-hidden="true"><use href="#i-down"></use></svg><span></span>'
      button.setAttribute('aria-expanded', 'false')
      $('.body', first).before(button)
    }
    const parts = rows.flatMap(row => $$('.call, .command', row))
    const took = rows.flatMap(row => $$('[data-ms]', row)).reduce((sum, part) => sum + Number(part.dataset.ms), 0)
    const text = worked(parts.map(part => $('.call-name', part)?.textContent ?? ''), took), label = button.lastChild
    if (label.textContent !== text) label.textContent = text
    first.classList.add('work-first')
    const folded = button.getAttribute('aria-expanded') === 'false'
    for (const row of rows) row.classList.toggle('folded', folded)
  }
}

if (log) {
  log.addEventListener('click', event => {
    const button = event.target.closest('.work-fold')
    if (!button) return
    button.setAttribute('aria-expanded', String(button.getAttribute('aria-expanded') === 'false'))
    fold()
  })
  new MutationObserver(fold).observe(log, { childList: true, subtree: true })
  fold()
}
