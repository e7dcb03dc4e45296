// What the page does that attributes cannot say: keys, drafts and the outbox, where one reads, clocks.
// Everything here is an improvement on a page that works without it.

const $ = (selector, root = document) => root.querySelector(selector)
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)]
const thread = $('main.thread')?.dataset.thread
document.documentElement.dataset.scripted = ''

// A store that may be full, or forbidden by the browser: then drafts live as long as the page.
const store = {
  get: key => { try { return JSON.parse(localStorage.getItem('arbe:' + key)) } catch { return null } },
  set: (key, value) => {
    try {
      if (value == null || value.length === 0) localStorage.removeItem('arbe:' + key)
      else localStorage.setItem('arbe:' + key, JSON.stringify(value))
    } catch { /* as said above */ }
  },
}

// crypto.randomUUID is missing on plain http, which a house's own network often has.
const newID = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('')

// ---- Writing: Enter sends, the text is kept over reloads.

const touch = matchMedia('(pointer: coarse)').matches
const canSize = CSS.supports('field-sizing', 'content')
const grow = area => {
  if (canSize) return
  area.style.height = 'auto'
  area.style.height = area.scrollHeight + 'px'
}

for (const form of $$('form[data-draft]')) {
  const area = $('textarea', form), key = 'draft:' + form.dataset.draft
  const changed = () => {
    store.set(key, area.value)
    grow(area)
    form.classList.toggle('shell', /^\s*(!|\/run(\s|$))/.test(area.value))
  }
  area.value ||= store.get(key) ?? ''
  changed()
  area.addEventListener('input', changed)
  area.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touch) {
      event.preventDefault()
      if (area.value.trim()) form.requestSubmit()
    } else if (event.key === 'ArrowUp' && area.value === '' && $('#outbox form:last-child')) {
      event.preventDefault()
      takeBack($('#outbox form:last-child'))
    } else if (event.key === 'Escape') area.blur()
  })
  form.clear = () => { area.value = ''; changed() }
}

// A thread that was started here took the draft of the house's page with it.
const starter = $('.starter')
starter?.addEventListener('submit', () => store.set('starting', { draft: starter.dataset.draft, thread: starter.thread.value }))
const starting = store.get('starting')
if (thread && starting?.thread === thread) {
  store.set('draft:' + starting.draft, null)
  store.set('starting', null)
}

// ---- The outbox: what was sent waits here until the log has it, over reloads too. Its id makes sending
// it again harmless, so it is sent again whenever there is doubt.

const outbox = $('#outbox'), composer = $('#composer')

const keepOutbox = () => store.set('outbox:' + thread,
  $$('form:not(.sent)', outbox).map(f => ({ id: f.elements.entry.value, text: f.elements.text.value })))

function send(id, text) {
  const form = $('#outbox-item').content.firstElementChild.cloneNode(true)
  form.id = 'out-' + id
  form.elements.entry.value = id
  form.elements.text.value = text
  $('.outgoing-text', form).textContent = text
  outbox.append(form) // Datastar sees it and posts it
}

function takeBack(form) {
  const area = $('#composer-text')
  area.value = form.elements.text.value + (area.value && '\n' + area.value)
  form.remove()
  keepOutbox()
  area.dispatchEvent(new Event('input'))
  area.focus()
}

if (outbox) {
  for (const { id, text } of store.get('outbox:' + thread) ?? []) send(id, text)
  composer.addEventListener('submit', event => {
    event.preventDefault()
    const text = $('#composer-text').value
    if (!text.trim()) return
    send(newID(), text)
    keepOutbox()
    composer.clear()
    toEnd()
  })
  outbox.addEventListener('click', event => {
    if (event.target.matches('.edit')) takeBack(event.target.closest('form'))
  })
}

function sweepOutbox() {
  const next = nextSeq()
  for (const form of $$('form.sent', outbox)) if (Number(form.dataset.seq) < next) form.remove()
  keepOutbox()
}

// ---- The connection. Datastar keeps it; here it is shown, watched, and made anew when it went silent.

const nextSeq = () => Number($('.next')?.id.slice(5) ?? 0)
let heard = Date.now()

function reconnect() {
  const live = $('#live[data-from]')
  if (!live) return
  heard = Date.now()
  const fresh = live.cloneNode()
  fresh.dataset.init ||= live.dataset.paused
  if (nextSeq()) fresh.dataset.from = live.dataset.from.replace(/after=\d+/, 'after=' + (nextSeq() - 1))
  live.replaceWith(fresh) // the old one's connection goes with it
}

function pause() {
  const live = $('#live[data-init]')
  if (!live) return
  live.dataset.paused = live.dataset.init
  delete live.dataset.init // and Datastar hangs up
}

document.addEventListener('datastar-fetch', ({ detail: { type, el } }) => {
  if (el.id === 'live') {
    const lost = type === 'retrying' || type === 'error'
    if (lost) document.documentElement.dataset.connection = 'lost'
    else if (type.startsWith('datastar-')) {
      delete document.documentElement.dataset.connection
      heard = Date.now()
    }
  } else if (el.matches?.('.stop')) {
    if (type === 'error' || type === 'retries-failed') el.classList.remove('stopping')
  } else if (el.matches?.('.outgoing')) {
    const late = ['retrying', 'error', 'retries-failed'].includes(type)
    if (late) {
      el.classList.add('late')
      $('.why', el).textContent = type === 'retrying' ? 'Not sent, trying again…' : 'Not sent.'
    }
  }
})

// A quiet server still says something every two seconds.
const silence = 15_000, hiddenFor = 60_000
let hiddenSince = 0
setInterval(() => {
  // Browsers allow few connections to one server: a tab nobody looks at gives its own back.
  if (document.hidden && hiddenSince && Date.now() - hiddenSince > hiddenFor) pause()
  else if (!document.hidden && Date.now() - heard > silence) reconnect()
}, 2_000)
document.addEventListener('visibilitychange', () => {
  hiddenSince = document.hidden ? Date.now() : 0
  if (!document.hidden && $('#live[data-from]:not([data-init])')) reconnect()
})
addEventListener('online', reconnect)
// A page that is left may be kept for the way back, and its connection with it.
addEventListener('pagehide', pause)
addEventListener('pageshow', event => {
  if (!event.persisted) return
  reconnect()
  for (const id of $$('.fork input')) id.value = newID() // who comes back may want another fork
})

// ---- Reading: follow the end, or stay where one reads whatever comes above or below.

const scroller = $('#scroller'), log = $('#log'), jump = $('#jump')
const atEnd = () => scroller.scrollTop > -32 && !$('#newer')
const toEnd = () => { if (scroller) scroller.scrollTop = 0 }
let anchor = null, following = true, seen = nextSeq()

// remember notes where one reads: the first entry in view, and where on the screen it is.
function remember() {
  following = atEnd()
  if (following) seen = nextSeq()
  const top = scroller.getBoundingClientRect().top
  const element = $$('[data-entry]', log).find(e => e.getBoundingClientRect().bottom > top)
  anchor = element && { element, offset: element.getBoundingClientRect().top, scrolled: scroller.scrollTop }
  pill()
}

// hold keeps it there when the page has changed, but for what the reader has scrolled since.
function hold() {
  if (following && atEnd()) toEnd()
  else if (anchor?.element.isConnected) {
    const top = anchor.element.getBoundingClientRect().top // before scrollTop: it brings the layout up to date
    const scrolled = scroller.scrollTop
    scroller.scrollTop = scrolled + top - (anchor.offset - (scrolled - anchor.scrolled))
  }
  remember()
}

function pill() {
  const fresh = following ? 0 : Math.max(nextSeq() - seen, 0)
  jump.classList.toggle('away', !following)
  $('#jump-text').textContent = fresh && seen ? fresh + ' new' : 'Jump to latest'
}

if (scroller) {
  let asked = false
  scroller.addEventListener('scroll', () => {
    if (asked) return
    asked = true
    requestAnimationFrame(() => { asked = false; remember() })
  }, { passive: true })
  new ResizeObserver(hold).observe($('.content', scroller))
  new MutationObserver(() => { hold(); sweepOutbox() }).observe(log, { childList: true })
  if (outbox) new MutationObserver(sweepOutbox).observe(outbox, { childList: true, subtree: true, attributes: true, attributeFilter: ['data-seq'] })
  jump.addEventListener('click', event => {
    if ($('#newer')) return // the link leads to the end of the log
    event.preventDefault()
    toEnd()
  })
  arrive()
  addEventListener('hashchange', arrive)
}

// A link to an entry that is not on this page leads to the page that has it.
function arrive() {
  const seq = location.hash.match(/^#e(\d+)$/)?.[1]
  if (!seq) return remember()
  const target = document.getElementById('e' + seq)
  if (target) target.scrollIntoView({ block: 'center' })
  else if (new URLSearchParams(location.search).get('at') !== seq) location.replace(`${location.pathname.replace(/\/entries$/, '')}?at=${seq}#e${seq}`)
  remember()
}

// ---- Clocks.

function ago(seconds, date) {
  if (seconds < 60) return 'now'
  if (seconds < 3600) return Math.floor(seconds / 60) + 'm'
  if (seconds < 86400) return Math.floor(seconds / 3600) + 'h'
  if (seconds < 604800) return Math.floor(seconds / 86400) + 'd'
  const sameYear = date.getFullYear() === new Date().getFullYear()
  return date.toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: sameYear ? undefined : 'numeric' })
}

function tick() {
  for (const time of $$('time[datetime]:not(.elapsed)')) {
    const date = new Date(time.dateTime), text = ago((Date.now() - date) / 1000, date)
    if (time.textContent !== text) time.textContent = text
    if (!time.dataset.local) {
      time.dataset.local = 'yes'
      time.title = date.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'medium' })
    }
  }
}
function tickElapsed() {
  for (const time of $$('.elapsed')) {
    const s = Math.max(0, Math.floor((Date.now() - new Date(time.dateTime)) / 1000))
    time.textContent = s < 60 ? s + 's' : Math.floor(s / 60) + 'm ' + (s % 60) + 's'
  }
}
tick()
tickElapsed()
setInterval(tick, 20_000)
setInterval(tickElapsed, 1_000)

// ---- An entry's actions.

const said = (button, word) => {
  const title = button.title
  button.title = word
  setTimeout(() => { button.title = title }, 1500)
}
document.addEventListener('click', event => {
  const link = event.target.closest('.copy-link')
  if (link && navigator.clipboard && !event.metaKey && !event.ctrlKey) {
    event.preventDefault()
    navigator.clipboard.writeText(link.href).then(() => said(link, 'Copied'))
    history.replaceState(null, '', link.hash)
  }
  const quote = event.target.closest('.quote')
  if (quote) {
    const body = $('.body', quote.closest('.entry')), area = $('#composer-text')
    const text = ($('.prompt', body) ? '$ ' + $('.prompt', body).innerText : body.innerText).trim()
    area.value = text.split('\n').map(l => '> ' + l).join('\n') + '\n\n' + area.value
    area.dispatchEvent(new Event('input'))
    area.focus()
  }
  const copy = event.target.closest('.copy')
  if (copy) navigator.clipboard?.writeText($('code', copy.parentElement)?.innerText ?? '').then(() => { copy.textContent = 'Copied' })
  for (const menu of $$('details.menu[open]')) if (!menu.contains(event.target)) menu.open = false
})
document.addEventListener('pointerover', event => {
  const pre = event.target.closest?.('.chat pre')
  if (!pre || $('.copy', pre) || !navigator.clipboard) return
  const copy = document.createElement('button')
  Object.assign(copy, { type: 'button', className: 'copy', textContent: 'Copy' })
  pre.append(copy)
})

// ---- Keys.

const choices = () => $$(thread ? '[data-entry]' : '[data-stop]')
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

let before = ''
document.addEventListener('keydown', event => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest('input, textarea, select, [contenteditable]')) return
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    c: () => $('#composer-text, #starter-text')?.focus(),
    e: () => jump?.click(),
    x: () => $$('.foot .stop button').at(-1)?.click(),
    '?': () => $('#sheet')?.togglePopover(),
    h: () => { if (before === 'g') $('.place.home')?.click() },
  }
  if (keys[event.key]) {
    if (event.key !== 'h' || before === 'g') event.preventDefault()
    keys[event.key]()
  }
  before = event.key
})
if (location.hash === '#new') $('#starter-text')?.focus()
