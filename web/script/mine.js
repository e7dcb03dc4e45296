// The reader's own state: which threads they have not read, and how many need them. The rows of lists are the same for
// everyone, so the script adds this state to the rows after each change.

import { $, $$, nextSeq, post, thread, told, unreachable } from './dom.js'
import { notify } from './notice.js'

const mine = () => $('#mine')

// overlay marks the rows of threads with unread messages, and puts the number of threads that need the reader into the title.
function overlay() {
  if (!mine()) return
  const unread = JSON.parse(mine().dataset.unread), needs = Number(mine().dataset.needs)
  for (const [prefix, rows, name] of [['place-', '#direct .place, #places .place', '.place-name'], ['t-', '#threads .thread-item', '.thread-name']]) {
    for (const row of $$(rows)) {
      const n = unread[row.id.slice(prefix.length)] ?? 0
      row.classList.toggle('unread', n > 0)
      let count = $('.unread-count', row)
      if (!n) count?.remove()
      else {
        if (!count) {
          count = document.createElement('span')
          count.className = 'count unread-count'
          $(name, row).after(count)
        }
        const text = n > 99 ? '99+' : String(n)
        if (count.textContent !== text) {
          count.textContent = text
          count.title = text + ' unread'
        }
      }
    }
  }
  const plain = document.title.replace(/^\(\d+\) /, '')
  const title = (needs ? `(${needs}) ` : '') + plain
  if (document.title !== title) document.title = title
  const favicon = $('#favicon'), icon = new URL(favicon.dataset.needs, location).href
  if (needs && favicon.href !== icon) favicon.href = icon
  const mute = $('#mute')
  if (mute && thread) {
    const muted = JSON.parse(mine().dataset.muted).includes(thread)
    mute.value = String(!muted)
    mute.setAttribute('aria-pressed', muted)
    mute.title = muted ? 'Muted: only mentions need you' : 'Mute: only mentions need you'
    mute.setAttribute('aria-label', mute.title)
  }
}

// see tells the server how far the reader has read the open thread, at most once a second, and only while the page is visible.
let reported = 0, waiting = false
function lastSeen() {
  const scroller = $('#scroller')
  if (!scroller || document.visibilityState !== 'visible') return 0
  if (scroller.scrollTop > -32 && !$('#newer')) return nextSeq() - 1
  const bottom = scroller.getBoundingClientRect().bottom
  const shown = $$('#log [data-entry]').filter(e => e.getBoundingClientRect().top < bottom)
  return Number(shown.at(-1)?.id.slice(1) ?? 0)
}
async function see() {
  if (!thread || waiting || lastSeen() <= reported) return
  waiting = true
  const seq = lastSeen()
  try {
    if ((await post(`/threads/${thread}/read`, { seq })).ok) reported = Math.max(reported, seq)
  } catch { /* the next change tries again */ }
  setTimeout(() => { waiting = false; if (lastSeen() > reported) see() }, 1000)
}

// After the reader marks an entry as unread, this page reports nothing as read until they open it again.
document.addEventListener('submit', async event => {
  const form = event.target
  if (!form.matches('.mark-unread')) return
  event.preventDefault()
  try {
    const answer = await post(form.action)
    if (!answer.ok) return notify(await answer.text())
  } catch { return notify(unreachable) }
  reported = Infinity
  const entry = form.closest('.entry'), before = entry.previousElementSibling
  $('#unread-line')?.remove()
  ;(before?.matches('.day') ? before : entry).before($('#unread-mark').content.cloneNode(true))
  notify('Marked unread from here.')
})

overlay()
told('patched', overlay)
if (thread) {
  see()
  told('patched', see)
  told('logged', see)
  document.addEventListener('visibilitychange', see)
  $('#scroller')?.addEventListener('scrollend', see, { passive: true })
}
