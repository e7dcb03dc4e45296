// A terminal of a sandbox (web/tty.templ). The server emulates the terminal, sends what changes on its screen, and types what
// the page sends.

import { $, $$, newID, post } from './dom.js'
import { keyText, pasteText, Typing } from './ttykeys.js'
import { Screen } from './ttyscreen.js'

const path = $('#tty').dataset.path, tab = newID()
const region = $('#tty-screen'), input = $('#tty-input'), status = $('#tty-status'), again = $('#tty-again'), title = $('#tty-title')
const screen = new Screen({ scroller: region, main: $('#tty-main'), other: $('#tty-other'), cursor: $('#tty-cursor') })
const modes = {}
let seen = '', over = false, other = false, name = document.title

const say = text => { if (status.textContent !== text) status.textContent = text }

// --- The screen ---

// size measures how many rows and columns fit.
function size() {
  const probe = $('#tty-probe').getBoundingClientRect(), style = getComputedStyle(region)
  const width = region.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
  const height = region.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)
  return { rows: Math.max(Math.floor(height / probe.height), 1), columns: Math.max(Math.floor(width / (probe.width / 10)), 2) }
}

let request = null, heard = 0, pause = 300, asked = ''
async function follow() {
  request?.abort()
  const mine = request = new AbortController()
  const { rows, columns } = size()
  asked = rows + ' ' + columns
  heard = Date.now()
  try {
    const answer = await fetch(path + '/screen?' + new URLSearchParams({ rows, columns, seen }), { signal: mine.signal, cache: 'no-store', headers: { 'Datastar-Request': 'true' } })
    if (answer.status >= 400 && answer.status < 500) return end('gone', await answer.text())
    if (!answer.ok) throw new Error('the server answers ' + answer.status)
    await read(answer.body.getReader(), mine)
  } catch { /* handled like the end of the answer */ }
  if (request !== mine || over) return
  request = null
  say('Reconnecting…')
  setTimeout(() => { if (!request && !over && !document.hidden) follow() }, pause)
  pause = Math.min(pause * 1.7, 5_000)
}

async function read(reader, mine) {
  const decoder = new TextDecoder()
  for (let text = ''; ;) {
    const { done, value } = await reader.read()
    if (done || request !== mine) return
    heard = Date.now()
    pause = 300
    text += decoder.decode(value, { stream: true })
    const lines = text.split('\n')
    text = lines.pop()
    for (const line of lines) if (line.startsWith('data: {')) show(JSON.parse(line.slice(6)))
  }
}

function show(frame) {
  seen = frame.c
  Object.assign(modes, { cursorKeys: !!frame.k, paste: !!frame.p })
  other = !!frame.o
  screen.show(frame)
  title.textContent = frame.n ?? ''
  document.title = (frame.n ? frame.n + ' · ' : '') + name
  say(frame.s ?? '')
  region.dataset.live = ''
  if (frame.end) end(frame.end.how, frame.end.words)
}

function end(how, words) {
  over = true
  request?.abort()
  request = null
  delete region.dataset.live
  say(words)
  again.hidden = how !== 'elsewhere'
  input.disabled = how !== 'elsewhere'
  $('#tty-cursor').hidden = true
}
again.addEventListener('click', () => {
  over = false
  again.hidden = true
  follow()
  input.focus()
})

// --- Keys ---

const send = async (keys, n, repeated) => {
  if (over) return 'stop'
  const answer = await post(path + '/keys', { tab, n, keys, ...repeated && { again: 'yes' } })
  if (answer.ok) return 'done'
  return answer.status >= 500 || answer.status === 429 ? 'again' : 'stop'
}
const typing = new Typing(send)
function type(text) {
  if (!text || over) return
  region.scrollTop = region.scrollHeight
  typing.type(text)
}

const selected = () => { const s = getSelection(); return !s.isCollapsed && region.contains(s.anchorNode) }
function pressed(event) {
  event.stopPropagation() // the page has keys of its own
  if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === 'l') {
    event.preventDefault()
    return $('#tty-leave').focus()
  }
  if (event.ctrlKey && !event.shiftKey && event.key === 'c' && selected()) return setTimeout(() => getSelection().removeAllRanges())
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'v') return // becomes a paste
  const text = keyText(event, modes)
  if (!text) return
  event.preventDefault()
  type(text)
}
input.addEventListener('keydown', pressed)
region.addEventListener('keydown', pressed)
// Keyboards of phones and compositions change the text field instead of pressing keys.
input.addEventListener('beforeinput', event => {
  if (event.inputType === 'deleteContentBackward' && !input.value) type('\x7f')
  if (event.inputType === 'insertLineBreak') {
    event.preventDefault()
    type('\r')
  }
})
const typed = () => {
  type(input.value.replace(/\n/g, '\r'))
  input.value = ''
}
input.addEventListener('input', event => { if (!event.isComposing) typed() })
input.addEventListener('compositionend', typed)
for (const target of [input, region]) target.addEventListener('paste', event => {
  event.preventDefault()
  type(pasteText(event.clipboardData.getData('text'), modes))
})
for (const button of $$('[data-key]')) button.addEventListener('click', () => {
  const key = button.dataset.key
  type(keyText({ key, ctrlKey: key.length === 1 }, modes))
  input.focus()
})

// Focus the text field, so that keyboards of phones open and compositions work, unless text is selected: focus would clear it.
region.addEventListener('mouseup', () => { if (getSelection().isCollapsed) input.focus({ preventScroll: true }) })
region.addEventListener('focus', () => { if (region.matches(':focus-visible')) input.focus({ preventScroll: true }) })
// In editors and pagers, which have no lines above the screen, the wheel moves the cursor, as in other terminals.
region.addEventListener('wheel', event => {
  if (!other || event.ctrlKey) return
  event.preventDefault()
  type(keyText({ key: event.deltaY < 0 ? 'ArrowUp' : 'ArrowDown' }, modes).repeat(3))
}, { passive: false })

// --- The connection ---

// A hidden tab closes its connection, because browsers open only six to a server. It keeps reporting that it is open, so that the
// shell is not hung up. A page that is left reports that too.
const here = fields => post(path + '/keys', fields).catch(() => {})
document.addEventListener('visibilitychange', () => {
  if (over) return
  if (!document.hidden) return follow()
  request?.abort()
  request = null
  here({})
})
setInterval(() => {
  if (over) return
  if (document.hidden) here({})
  else if (Date.now() - heard > 45_000) follow()
}, 20_000)
addEventListener('pagehide', () => { if (!over) navigator.sendBeacon(path + '/keys', new URLSearchParams({ left: 'yes' })) })
addEventListener('pageshow', event => { if (event.persisted && !over) follow() })
addEventListener('online', () => { if (!over && !document.hidden) follow() })

let resizing = 0
new ResizeObserver(() => {
  clearTimeout(resizing)
  resizing = setTimeout(() => {
    const { rows, columns } = size()
    if (!over && request && asked !== rows + ' ' + columns) follow()
  }, 150)
}).observe(region)

follow()
if (!matchMedia('(pointer: coarse)').matches) input.focus()
