// Reading: follow the end, or keep the reading position when something is added above or below.

import { $, $$, nextSeq, tell, told } from './dom.js'
import { markDays } from './days.js'
import { session } from './storage.js'

const scroller = $('#scroller'), log = $('#log'), jump = $('#jump')
// The scroller's column is reversed: its end is at 0, and every position above it is negative.
const atEnd = () => scroller.scrollTop > -32 && !$('#newer')
const toEnd = () => { if (scroller) scroller.scrollTop = 0 }
let anchor = null, following = true, seen = nextSeq(), size = ''

// sizeNow tells whether the layout has changed since the reading position was recorded.
const sizeNow = () => scroller.clientHeight + ' ' + scroller.scrollHeight

// offset is the distance from the scroller's top to an entry's top.
const offset = entry => entry.getBoundingClientRect().top - scroller.getBoundingClientRect().top

// remember records the reading position: the first visible entry, and its place in the scroller.
function remember() {
  following = atEnd()
  if (following) seen = nextSeq()
  const top = scroller.getBoundingClientRect().top
  const element = $$('[data-entry]', log).find(e => e.getBoundingClientRect().bottom > top)
  anchor = element && { element, offset: offset(element), scrolled: scroller.scrollTop }
  size = sizeNow()
  pill()
}

// hold restores the reading position after the page has changed, and keeps what the reader has scrolled since.
function hold() {
  if (following && atEnd()) toEnd()
  else if (anchor?.element.isConnected) {
    const top = offset(anchor.element) // read before scrollTop, because it updates the layout
    const scrolled = scroller.scrollTop
    scroller.scrollTop = scrolled + top - (anchor.offset - (scrolled - anchor.scrolled))
  }
  remember()
}

const seqOf = entry => Number(entry.id.slice(1))
function pill() {
  // Only what has a row is new: a reaction, for example, has none.
  const fresh = following || !nextSeq() ? 0 : $$('[data-entry]', log).filter(e => seqOf(e) >= seen).length
  jump.classList.toggle('away', !following)
  $('#jump-text').textContent = fresh && seen ? fresh + ' new' : 'Jump to latest'
}

// prune removes entries far from the reading position once the page has many. So a page that stays open long, or is scrolled
// far, stays fast. The entries are loaded again when the reader scrolls back.
const mostEntries = 600, keptEntries = 300
function prune() {
  const all = $$('[data-entry]', log)
  if (all.length <= mostEntries) return
  const at = following ? all.length - 1 : Math.max(all.indexOf(anchor?.element), 0)
  const cut = (entries, kind, seq) => {
    const place = $('#more-places').content.querySelector('#' + kind).cloneNode(true), from = $('.trigger', place).dataset.from + seq
    $('a', place).href = $('.trigger', place).dataset.from = from
    const first = entries[0], last = kind === 'older' ? entries.at(-1) : log.lastElementChild
    const range = document.createRange()
    if (kind === 'older') range.setStartBefore(log.firstElementChild)
    else range.setStartBefore(first)
    range.setEndAfter(last)
    range.deleteContents()
    range.insertNode(place)
  }
  if (all.length - at > keptEntries + 50) cut(all.slice(at + keptEntries), 'newer', seqOf(all[at + keptEntries]) - 1)
  if (at > keptEntries + 50) cut(all.slice(0, at - keptEntries), 'older', seqOf(all[at - keptEntries - 1]) + 1)
}

// announce passes new entries to screen readers. The log itself is no live region, because they would then read every
// repainted line of output.
function announce(changes) {
  if (!document.documentElement.hasAttribute('data-live')) return
  for (const { addedNodes, target } of changes) {
    for (const entry of addedNodes) {
      if (!entry.matches?.('.entry') || entry.nextElementSibling?.matches('.entry')) continue // an older entry that was loaded
      const line = document.createElement('p')
      const text = $('.prompt', entry)?.textContent ?? $('.body', entry).textContent
      line.textContent = ($('header b', entry) ?? $('.gutter .unseen', entry))?.textContent + ': ' + text.trim().slice(0, 300)
      $('#announcer').replaceChildren(line)
    }
  }
}

// reachable lets Tab reach exactly the elements that scroll sideways, so that the keyboard can scroll them.
function reachable() {
  const regions = $$('.chat pre, .chat .table, .screen', log)
  const wide = regions.map(e => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)
  regions.forEach((e, i) => {
    // The server makes them all reachable, because it cannot know which are too wide.
    const named = e.hasAttribute('aria-label')
    if (wide[i] ? named : !named && e.tabIndex !== 0) return
    if (wide[i]) {
      e.tabIndex = 0
      e.setAttribute('role', 'region')
      e.setAttribute('aria-label', e.matches('.table') ? 'Table' : e.matches('.screen') ? 'Output' : 'Code')
    } else for (const name of ['tabindex', 'role', 'aria-label']) e.removeAttribute(name)
  })
}

// After a reload, restore the reading position. If it is on an older page, open that page.
const placeKey = 'place:' + location.pathname
let reloading = performance.getEntriesByType('navigation')[0]?.type === 'reload'
function comeBack() {
  const place = session.get(placeKey), led = place?.led
  session.set(placeKey, null)
  if (!place || !(reloading || led)) return false
  reloading = false
  const entry = document.getElementById('e' + place.seq)
  if (!entry) {
    if (led) return false
    session.set(placeKey, { ...place, led: true })
    location.replace(`${location.pathname.replace(/\/entries$/, '')}?at=${place.seq}`)
    return true
  }
  scroller.scrollTop += offset(entry) - place.offset
  return true
}
if (scroller) addEventListener('pagehide', () => {
  if (session.get(placeKey)?.led) return
  session.set(placeKey, following || !anchor?.element.isConnected ? null : { seq: Number(anchor.element.id.slice(1)), offset: anchor.offset })
})

// arrive scrolls to the entry that the address names. If this page does not have the entry, it opens the page that does.
function arrive() {
  if (comeBack()) return remember()
  const seq = location.hash.match(/^#e(\d+)$/)?.[1]
  if (!seq) return remember()
  const target = document.getElementById('e' + seq)
  if (target) target.scrollIntoView({ block: 'center' })
  else if (new URLSearchParams(location.search).get('at') !== seq) location.replace(`${location.pathname.replace(/\/entries$/, '')}?at=${seq}#e${seq}`)
  remember()
}

// toAnswer goes to the beginning of the last answer. On a phone, a long one would otherwise open at its end, below all the work
// that led to it.
function toAnswer() {
  const last = $$('[data-entry]:has(.chat)', log).at(-1)
  if (!last?.matches('.by-bot') || !matchMedia('(max-width: 719px)').matches || $('#writing article')) return
  scroller.scrollTop += Math.min(offset(last), 0)
  remember()
}

if (scroller) {
  let asked = false
  scroller.addEventListener('scroll', () => {
    if (asked) return
    asked = true
    // If the layout has changed, the entries have moved. The ResizeObserver runs only after this callback, so hold is called now.
    requestAnimationFrame(() => { asked = false; size === sizeNow() ? remember() : hold() })
  }, { passive: true })
  // Observe the scroller too. It shrinks when the composer grows, which would push the reading position out at the top.
  const sizes = new ResizeObserver(() => { hold(); reachable() })
  for (const e of [scroller, $('.content', scroller)]) sizes.observe(e)
  markDays(log)
  new MutationObserver(changes => { announce(changes); prune(); markDays(log); hold(); tell('logged') }).observe(log, { childList: true })
  jump.addEventListener('click', event => {
    if ($('#newer')) return // this page lacks the end of the log, and the link leads there
    event.preventDefault()
    toEnd()
  })
  arrive()
  if (following && !reloading && !location.hash) toAnswer()
  addEventListener('hashchange', arrive)
}
told('sent', toEnd)
