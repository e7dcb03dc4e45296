// The list of places: it marks the place of this page, shows what is running, and handles the keyboard.

import { $, $$, thread, told } from './dom.js'

const places = () => $$('#direct .place, #places .place')

// here marks the current place. The server cannot do that in live events, because they are the same for all tabs.
function here() {
  const current = thread ? 'place-' + thread : $('.settings') ? 'place-settings' : $('#search') ? 'place-search' : 'place-house'
  for (const place of places()) place.toggleAttribute('aria-current', place.id === current)
  rove()
}

// showRunning shows in the browser's tab that something is running: by the icon, and on a house's page by the title too, which
// also counts the threads that wait for a person's approval. The title of a thread's page comes from the server.
const favicon = $('#favicon'), plainIcon = favicon.href, houseTitle = $('#threads') && document.title.replace(/^\(\d+\) /, '').replace(/^(?:[◕●] \d+ (?:waiting|running) · )+/, '')
function showRunning() {
  const count = (state) => $$(`#threads .status.${state}:not(.state-word)`).length
  const waiting = count('waiting'), running = count('running')
  if (houseTitle) document.title = (waiting ? `◕ ${waiting} waiting · ` : '') + (running ? `● ${running} running · ` : '') + houseTitle
  const icon = running || $('#thread-head .status.running') ? new URL(favicon.dataset.running, location).href : plainIcon
  if (favicon.href !== icon) favicon.href = icon
}

// Tab stops once at the list of places, and the arrow keys move between them.
function rove() {
  const all = places(), stop = all.find(p => p === document.activeElement) ?? all.find(p => p.hasAttribute('aria-current')) ?? all[0]
  for (const place of all) place.tabIndex = place === stop ? 0 : -1
}
$('#places-column')?.addEventListener('keydown', event => {
  const all = places(), at = all.indexOf(document.activeElement)
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]
  if (at < 0 || to === undefined || !all[to]) return
  event.preventDefault()
  all[to].focus()
  rove()
})

rove()
showRunning()
told('patched', () => {
  here()
  showRunning()
})
