// The palette: what can be done with the open thread; threads, direct messages, houses, people, pages and actions by their names;
// what the server finds beyond those; and a search for anything else.

import { $, $$ } from './dom.js'

const palette = $('#palette'), input = palette && $('input', palette), list = palette && $('ul', palette)
const most = 12
const patient = 150 // how long the reader types no letter before the server is asked, in milliseconds

// choices returns everything that the page can offer. A choice has a name, a kind and a function that carries it out. It may have
// a shape, the key that does the same, an address, and the reason why it cannot be chosen now.
function choices() {
  const places = $$('#mine a, #direct a, #places a').map(a => ({ name: $('.place-name', a)?.textContent ?? a.textContent, kind: kindOf(a), go: () => a.click(), shape: shapeOf(a), href: a.pathname }))
  const houses = $$('.switch a:not([aria-current])').map(a => ({ name: a.textContent, kind: 'house', go: () => a.click(), shape: icon('house') }))
  const people = $$('li[data-kind="name"]', $('#completions')?.content ?? document.createElement('div')).map(p => ({ name: p.dataset.name, kind: 'person', go: () => search('from:"' + p.dataset.name + '" '), shape: icon('person') }))
  const actions = [
    { name: 'New thread', go: () => $('[data-new]').click(), shape: icon('plus'), key: $('#starter-text') ? 'c' : '' },
    { name: 'Next unread thread', key: 'n' },
    { name: 'Keyboard', go: () => $('#sheet').showPopover(), key: '?' },
    ...$$('.themes button').map(b => ({ name: b.textContent + ' theme', go: () => b.click() })),
    { name: 'Log out', go: () => $('form[action="/logout"] button').click() },
  ]
  // The page has a listener for each key, so that a choice does what its key does.
  for (const a of actions) a.go ??= () => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: a.key, bubbles: true }))
  const here = ofThread()
  return [...(input.value.trim() ? here : here.filter(a => !a.why)), ...places, ...houses, ...people, ...actions.map(a => ({ kind: 'action', ...a }))]
}

// ofThread returns the actions on the open thread. Each presses a button of the thread, or says why there is none.
function ofThread() {
  const head = $('#thread-head')
  if (!head) return []
  const muted = $('#mute', head)?.getAttribute('aria-pressed') === 'true', pin = $('.pin button[name="pinned"]', head), status = $('#context button[name="status"]')
  return [
    { name: 'Stop what runs', button: $('.stop button', head), icon: 'stop', key: 'x', why: 'nothing runs' },
    { name: 'Write a message', button: $('#composer-text'), icon: 'pen', key: 'c', why: 'the thread is closed' },
    { name: 'Rename thread', button: $('.rename', head), icon: 'pen', why: 'not possible' },
    { name: muted ? 'Unmute thread' : 'Mute thread', button: $('#mute', head), icon: 'mute', key: 'm', why: 'not possible' },
    { name: pin?.title ? pin.title + ' thread' : 'Pin thread', button: pin, icon: 'pin', why: 'not possible' },
    { name: status?.textContent ?? 'Close thread', button: status, icon: 'check', why: 'a bot drives it' },
  ].map(({ button, icon: shape, why, ...action }) => ({
    ...action, kind: 'this thread', shape: icon(shape), why: button && !button.disabled ? '' : why,
    go: () => button.matches('textarea') ? button.focus() : button.click(),
  }))
}

const kindOf = link => link.closest('#direct') ? 'direct message' : $('.status', link) ? 'thread' : 'page'
// shapeOf returns what a place begins with: the state of a thread, a person's disc, or an icon.
const shapeOf = link => {
  const shape = $('.status, .disc, .icon', link)?.cloneNode(true)
  $('.unseen', shape ?? document)?.remove()
  return shape
}
const icon = name => {
  const svg = $('svg.icon').cloneNode(true)
  $('use', svg).setAttribute('href', '#i-' + name)
  return svg
}
const search = words => { location.href = palette.dataset.search + '?q=' + encodeURIComponent(words) }

// found is what the server has found for some words.
let found = { words: '', choices: [] }
function show() {
  const typed = input.value.trim(), words = typed.toLowerCase().split(/\s+/)
  const fit = choices().filter(({ name }) => words.every(w => name.toLowerCase().includes(w))).slice(0, most)
  if (found.words === typed) fit.push(...found.choices.filter(c => !fit.some(f => f.href && f.href === c.href)))
  if (typed) fit.push({ name: `Search for “${typed}”`, kind: 'search', go: () => search(typed), shape: icon('search') })
  list.replaceChildren(...fit.map(optionOf))
  choose(Math.max(fit.findIndex(c => !c.why), 0))
}

function optionOf({ name, kind, go, shape, key, why }, i) {
  const item = document.createElement('li'), about = document.createElement('span'), mark = document.createElement('span')
  item.role = 'option'
  item.id = 'palette-' + i
  item.dir = 'auto'
  about.className = 'quiet'
  about.textContent = why || kind
  mark.className = 'shape'
  mark.ariaHidden = 'true'
  if (shape) mark.append(shape.cloneNode(true))
  item.append(mark, name, about)
  if (key) {
    const press = document.createElement('kbd')
    press.textContent = key
    item.append(press)
  }
  if (why) item.ariaDisabled = 'true'
  else item.addEventListener('click', () => { palette.close(); go() })
  return item
}

// look asks the server for threads and entries with the typed words, and shows them below what the page knows.
let asking, pausing
function look() {
  clearTimeout(pausing)
  asking?.abort()
  const words = input.value.trim()
  if (!words || found.words === words) return
  pausing = setTimeout(async () => {
    asking = new AbortController()
    try {
      const answer = await fetch(palette.dataset.search + '?q=' + encodeURIComponent(words), { headers: { 'Datastar-Request': 'true' }, signal: asking.signal })
      if (!answer.ok) return // such as half of a filter; the page of the search says what is wrong
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
      found = { words, choices: $$('a', page).map(a => ({ name: $('.place-name', a).textContent, kind: a.dataset.kind, href: a.getAttribute('href'), shape: shapeOf(a), go: () => { location.href = a.getAttribute('href') } })) }
      if (palette.open && input.value.trim() === words) show()
    } catch { /* the reader typed on, or the server is away: what the page knows is shown */ }
  }, patient)
}

function choose(at) {
  const all = [...list.children]
  all.forEach((item, i) => item.setAttribute('aria-selected', i === at))
  if (all[at]) {
    input.setAttribute('aria-activedescendant', all[at].id)
    all[at].scrollIntoView({ block: 'nearest' })
  } else input.removeAttribute('aria-activedescendant')
}

if (palette) {
  document.addEventListener('keydown', event => {
    if (event.key.toLowerCase() !== 'k' || !(event.metaKey || event.ctrlKey) || event.altKey || event.shiftKey) return
    event.preventDefault()
    if (palette.open) return palette.close()
    input.value = ''
    palette.showModal()
    show()
    input.focus()
  })
  input.addEventListener('input', () => { show(); look() })
  palette.addEventListener('click', event => { if (event.target === palette) palette.close() })
  input.addEventListener('keydown', event => {
    const all = [...list.children], at = all.findIndex(item => item.getAttribute('aria-selected') === 'true')
    const to = { ArrowDown: Math.min(at + 1, all.length - 1), ArrowUp: Math.max(at - 1, 0) }[event.key]
    if (to !== undefined) {
      event.preventDefault()
      choose(to)
    } else if (event.key === 'Escape') { // otherwise the field would only be emptied
      event.preventDefault()
      palette.close()
    } else if (event.key === 'Enter') {
      event.preventDefault()
      all[at]?.click()
    }
  })
}
