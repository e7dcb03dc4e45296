// What HTML attributes cannot express: keys, drafts and the outbox, the reading position, clocks. The page works without this
// script.

const $ = (selector, root = document) => root.querySelector(selector)
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)]
const thread = $('main.thread')?.dataset.thread
const places = () => $$('#places .place')
const dayWords = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' })
document.documentElement.dataset.scripted = ''

// localStorage may be full, or forbidden by the browser. Then drafts are lost with the page.
const store = {
  get: key => { try { return JSON.parse(localStorage.getItem('arbe:' + key)) } catch { return null } },
  set: (key, value) => {
    try {
      if (value == null || value.length === 0) localStorage.removeItem('arbe:' + key)
      else localStorage.setItem('arbe:' + key, JSON.stringify(value))
    } catch { /* see above */ }
  },
}

// crypto.randomUUID is missing on plain http, which a house's own network often has.
const newID = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('')

// ---- Writing: Enter sends, and the text survives a reload.

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
  area.addEventListener('input', () => {
    changed()
    $('.form-error', form)?.replaceChildren()
  })
  area.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touch) {
      event.preventDefault()
      if (area.value.trim() || $('.chips li', form)) form.requestSubmit()
    } else if (event.key === 'ArrowUp' && area.value === '' && $('#outbox form:last-child')) {
      event.preventDefault()
      takeBack($('#outbox form:last-child'))
    } else if (event.key === 'Escape') area.blur()
  })
  form.clear = () => { area.value = ''; changed() }
}

// When a thread was started with the draft of the house's page, its page removes the draft. That is the next page that opens
// with the focus in the composer. A refused text keeps its draft.
const starter = $('.starter')
starter?.addEventListener('submit', () => store.set('starting', starter.dataset.draft))
if (thread && location.hash === '#composer-text') {
  const draft = store.get('starting')
  if (draft) store.set('draft:' + draft, null)
  store.set('starting', null)
  $('#composer-text').focus()
  history.replaceState(null, '', location.pathname + location.search)
}

// ---- The outbox: messages wait here until they are in the log, and survive a reload. Because of their ids it is harmless to
// send them twice, so each is sent until the server answers, however long that takes.

const outbox = $('#outbox'), composer = $('#composer')
const firstTry = 500, lastTry = 5_000

// All tabs of the thread share the stored outbox, so each tab adds and removes only its own messages.
const outboxKey = 'outbox:' + thread
const stored = () => store.get(outboxKey) ?? []
const keep = (id, text, reply, files) => store.set(outboxKey, [...stored().filter(one => one.id !== id), { id, text, reply, files }])
const drop = id => store.set(outboxKey, stored().filter(one => one.id !== id))

// Each of the files is an artifact's id, a space, and a name.
function send(id, text, reply = '', files = []) {
  const form = $('#outbox-item').content.firstElementChild.cloneNode(true)
  form.id = 'out-' + id
  form.elements.entry.value = id
  form.elements.text.value = text
  form.elements.reply.value = reply
  $('.outgoing-text', form).textContent = text
  for (const value of files) form.append(Object.assign(document.createElement('input'), { type: 'hidden', name: 'file', value }))
  $('.outgoing-files', form).textContent = files.map(nameOfFile).join(', ')
  outbox.append(form)
  keep(id, text, reply, files)
  deliver(form)
}

function refuse(form, why) {
  form.classList.add('refused')
  $('.why', form).textContent = 'Not sent. ' + why
}

// deliver posts one form of the outbox, and tries again while the server does not answer.
async function deliver(form, pause = firstTry) {
  clearTimeout(form.again)
  if (form.posting) return
  form.posting = true
  form.classList.remove('refused')
  let answer, text
  try {
    answer = await fetch(form.action, {
      method: 'POST', headers: { 'Datastar-Request': 'true' }, body: new URLSearchParams(new FormData(form)), signal: AbortSignal.timeout(60_000),
    })
    text = await answer.text()
  } catch { /* no answer */ }
  form.posting = false
  if (!form.isConnected) return // the writer took it back
  if (!answer || text === undefined || answer.status >= 500) {
    form.classList.add('late')
    $('.why', form).textContent = 'Not sent, trying again…'
    form.again = setTimeout(() => deliver(form, Math.min(pause * 1.7, lastTry)), pause)
  } else if (!answer.ok) refuse(form, text)
  else {
    const item = new DOMParser().parseFromString(text, 'text/html').querySelector('.outgoing')
    if (!item) return refuse(form, 'The server gave an answer that this page does not understand. Load the page again.')
    form.replaceWith(item)
    if (item.matches('.sent')) drop(item.elements.entry.value)
    sweepOutbox()
  }
}

// deliverLate sends late messages at once when the server is back.
const deliverLate = () => { for (const form of $$('.outgoing.late:not(.refused)', outbox ?? document)) deliver(form) }

function takeBack(form) {
  const area = $('#composer-text')
  area.value = form.elements.text.value + (area.value && '\n' + area.value)
  replyTo(form.elements.reply.value, 'A reply')
  for (const { value } of $$('[name=file]', form)) addChip(nameOfFile(value)).done(value)
  clearTimeout(form.again)
  drop(form.elements.entry.value)
  form.remove()
  area.dispatchEvent(new Event('input'))
  area.focus()
}

// ---- Files: each is uploaded when it is chosen, and waits as a chip, which can be removed, until the message is sent.

const chipList = $('#composer-files')
const nameOfFile = value => value.slice(value.indexOf(' ') + 1)
const chipsKey = 'files:' + thread
const uploadTries = 4

// chipsChanged shows the chips, stores those that are ready, and lets a message with files have no text.
function chipsChanged() {
  const chips = $$('li', chipList)
  chipList.hidden = !chips.length
  $('#composer-text').required = !chips.length
  $('#composer-error').textContent = ''
  store.set(chipsKey, chips.map(chip => chip.dataset.file).filter(Boolean))
}

// addChip adds a chip. done makes it ready, failed says why it is not, and gone is called when it is removed.
function addChip(name, gone = () => {}) {
  const chip = document.createElement('li'), label = document.createElement('span'), state = document.createElement('span')
  const remove = Object.assign(document.createElement('button'), { type: 'button', className: 'link', textContent: 'Remove' })
  remove.setAttribute('aria-label', 'Remove ' + name)
  Object.assign(label, { className: 'chip-name', textContent: name, dir: 'auto' })
  Object.assign(state, { className: 'meta', textContent: 'uploading…' })
  state.setAttribute('role', 'status')
  remove.addEventListener('click', () => {
    chip.remove()
    gone()
    chipsChanged()
    $('.attach', composer).focus()
  })
  chip.append(label, state, remove)
  chipList.append(chip)
  chipsChanged()
  return {
    done(value) { chip.dataset.file = value; state.textContent = ''; chipsChanged() },
    failed(why) { chip.classList.add('refused'); state.textContent = why },
  }
}

// upload stores a file as an artifact of the thread. Its id makes it harmless to try again.
async function upload(file) {
  const left = new AbortController(), chip = addChip(file.name, () => left.abort())
  const name = [...file.name.replace(/\p{C}/gu, '')].slice(-200).join('').trim()
  const query = new URLSearchParams({ thread_id: thread, id: newID(), label: name })
  for (let tries = 1; ; tries++) {
    let answer, text
    try {
      answer = await fetch('/api/artifact/?' + query, {
        method: 'POST', headers: { 'Content-Type': file.type || 'application/octet-stream' }, body: file, signal: left.signal,
      })
      text = await answer.json()
    } catch { /* no answer */ }
    if (left.signal.aborted) return
    if (answer?.ok && text?.id) return chip.done(text.id + ' ' + name)
    if (answer && answer.status < 500) return chip.failed('Not stored: ' + (text?.error?.message ?? 'the server refused it'))
    if (tries === uploadTries) return chip.failed('Not stored: the server cannot be reached. Choose it again.')
    await new Promise(resolve => setTimeout(resolve, firstTry * 2 ** tries))
  }
}

function attach(files) {
  const most = Number(chipList.dataset.most), room = most - chipList.children.length
  for (const file of files.slice(0, room)) upload(file)
  if (files.length > room) $('#composer-error').textContent = `A message may have ${most} files.`
}

if (chipList) {
  for (const value of store.get(chipsKey) ?? []) addChip(nameOfFile(value)).done(value)
  $('.attach', composer).addEventListener('click', () => $('#composer-file').click())
  $('#composer-file').addEventListener('change', event => {
    attach([...event.target.files])
    event.target.value = '' // so that the same file can be chosen again
    $('#composer-text').focus()
  })
}

// The others who follow the thread see that somebody writes. Nobody needs to know of a failure.
const typingEvery = 3_000
let typed = 0
$('#composer-text')?.addEventListener('input', event => {
  if (!event.isTrusted || !event.target.value.trim() || Date.now() - typed < typingEvery) return
  typed = Date.now()
  fetch(`/threads/${thread}/typing`, { method: 'POST', headers: { 'Datastar-Request': 'true' } }).catch(() => {})
})

// replyTo makes the next message a reply to the entry with this id; none if it is empty. words say so in the composer.
function replyTo(id, words = '') {
  composer.elements.reply.value = id
  $('#replying').textContent = words
  $('.replying', composer).hidden = !id
}

// askAgain puts a question into the composer, to be changed and asked again. The page may show only its beginning.
async function askAgain(button) {
  const area = $('#composer-text')
  try {
    const answer = await fetch(button.dataset.from)
    if (!answer.ok) return notify(await answer.text())
    area.value = (await answer.json()).text ?? ''
  } catch { return notify('The server cannot be reached. Try again in a moment.') }
  replyTo(button.dataset.reply, 'Asking again')
  area.dispatchEvent(new Event('input'))
  area.focus()
}
if (composer) document.addEventListener('click', event => {
  const again = event.target.closest('.ask-again')
  if (again) askAgain(again)
  const reply = event.target.closest('.reply')
  if (reply) {
    replyTo(reply.dataset.reply, 'In reply to ' + reply.dataset.to)
    $('#composer-text').focus()
  }
  if (event.target.matches('.not-replying')) replyTo('')
})

if (outbox) {
  for (const { id, text, reply, files } of stored()) send(id, text, reply, files)
  composer.addEventListener('submit', event => {
    event.preventDefault()
    const text = $('#composer-text').value, chips = $$('li', chipList)
    if (!text.trim() && !chips.length) return
    if (chips.some(chip => !chip.dataset.file)) {
      $('#composer-error').textContent = 'Not sent yet. Wait until all files are there, or remove those that are not.'
      return
    }
    const most = Number(composer.dataset.max), size = new Blob([text]).size
    if (size > most) {
      const why = `This has ${(size / 2 ** 20).toFixed(1)} MiB, and a message may have ${Math.ceil(most / 2 ** 20)} MiB. Shorten it, or put it into a file.`
      $('#composer-error').textContent = 'Not sent. ' + why
      return
    }
    send(newID(), text, composer.elements.reply.value, chips.map(chip => chip.dataset.file))
    replyTo('')
    for (const chip of chips) chip.remove()
    chipsChanged()
    composer.clear()
    toEnd()
  })
  outbox.addEventListener('submit', event => {
    event.preventDefault()
    deliver(event.target)
  })
  outbox.addEventListener('click', event => {
    if (event.target.matches('.edit')) takeBack(event.target.closest('form'))
  })
}

// sweepOutbox removes messages that the log shows.
function sweepOutbox() {
  const next = nextSeq()
  for (const form of $$('form.sent', outbox)) if (Number(form.dataset.seq) < next) form.remove()
}

// ---- The connection, which all tabs of the browser share (connection.js). The page tells it which topics it shows, applies
// the patches, and watches for silence.

const nextSeq = () => Number($('.next')?.id.slice(5) ?? 0)
const script = $('meta[name=arbe-connection]').content
let cursors = {} // by topic
let waiting = new Set() // the topics that are not live yet
let heard = Date.now(), asked = heard // when the connection said something, and when it was told the topics
let sendToConnection = null // sends a message to the connection
let answered = 0, newWorker = null // when the shared worker answered last, and how to begin another one; null without one

// wanted returns the topics of this page with their cursors. A page without #live follows nothing.
function wanted() {
  const topics = {}
  for (const text of $('#live[data-topics]')?.dataset.topics.split(' ') ?? []) {
    const [kind, id, cursor] = text.split('/'), name = kind + '/' + id
    topics[name] = kind === 'thread' ? String(Math.max(nextSeq() - 1, 0)) : cursors[name] ?? cursor
  }
  return topics
}

let shown = ''
function show() {
  if (!sendToConnection || paused) return
  const topics = wanted(), names = Object.keys(topics).join(' ')
  if (names === shown) return
  shown = names
  waiting = new Set(Object.keys(topics))
  heard = asked = Date.now()
  sendToConnection(names ? { topics } : { leave: true })
}

let paused = document.hidden // a page may load in a tab that nobody looks at
let leaving = false // the browser is about to show another page
function pause() {
  paused = true
  shown = ''
  $('#typing')?.replaceChildren()
  delete document.documentElement.dataset.live
  sendToConnection?.({ leave: true })
}
function resume() {
  paused = leaving = false
  answered = Date.now()
  show()
}
function reconnect() {
  if (paused) return
  heard = Date.now()
  shown = ''
  show()
  sendToConnection?.({ again: true })
}

function receive(event) {
  if (event.here) {
    answered = Date.now()
    return
  }
  if (event.lost) {
    document.documentElement.dataset.connection = 'lost'
    $('#typing')?.replaceChildren()
    delete document.documentElement.dataset.live
    waiting = new Set(shown.split(' '))
    return
  }
  heard = Date.now()
  if (!event.t || paused) return
  if (document.documentElement.dataset.connection) {
    delete document.documentElement.dataset.connection
    deliverLate()
  }
  if (event.c && !event.t.startsWith('thread/')) cursors[event.t] = event.c
  put(event.p ?? [])
  waiting.delete(event.t)
  if (!waiting.size) document.documentElement.dataset.live = ''
  if (event.end) {
    shown = ''
    setTimeout(show, 1_000) // a topic that ended is followed again if the page still names it
  }
}

// put applies patches. A patch without a target is skipped: the event came twice, or another tab needs it.
function put(patches) {
  const focused = document.activeElement?.id
  for (const { s: selector, m: mode = 'outer', h: elements = '' } of patches) {
    if (!$(selector)) continue
    const detail = { type: 'datastar-patch-elements', el: document.body, argsRaw: { selector, mode, elements } }
    document.dispatchEvent(new CustomEvent('datastar-fetch', { detail }))
    // A tool call whose failure arrives is open, as it is in a page that is loaded later.
    if (selector.endsWith('-call-result') && $(selector + ' .error')) $(selector).parentElement.open = true
  }
  if (focused && !document.activeElement?.id) document.getElementById(focused)?.focus({ preventScroll: true })
  here()
  showRunning()
}

// showRunning shows in the browser's tab that something is running: by the icon, and on a house's page by the title too, which
// also counts the threads that wait for a person's yes. The title of a thread's page comes from the server.
const favicon = $('#favicon'), plainIcon = favicon.href, houseTitle = $('#threads') && document.title.replace(/^(?:[◕●] \d+ (?:waiting|running) · )+/, '')
function showRunning() {
  const count = (state) => $$(`#threads .status.${state}:not(.state-word)`).length
  const waiting = count('waiting'), running = count('running')
  if (houseTitle) document.title = (waiting ? `◕ ${waiting} waiting · ` : '') + (running ? `● ${running} running · ` : '') + houseTitle
  const icon = running || $('#thread-head .status.running') ? new URL(favicon.dataset.running, location).href : plainIcon
  if (favicon.href !== icon) favicon.href = icon
}

// here marks the current place. The server cannot do it in live events, because they are the same for all tabs.
function here() {
  const current = thread ? 'place-' + thread : $('.settings') ? 'place-settings' : 'place-house'
  for (const place of $$('#places .place')) place.toggleAttribute('aria-current', place.id === current)
  rove()
}

// connect uses the shared worker. Where there is none, or it does not answer in time, the page has a connection of its own
// until it does.
const workerAnswers = 5_000, importPause = 5_000
function connect() {
  let own = null // gives the page's own connection up
  let trying = false
  const use = send => {
    sendToConnection = send
    shown = ''
    show()
  }
  const alone = async () => {
    if (trying) return
    trying = true
    let Connection
    for (let tries = 0; !sendToConnection && !Connection; tries++) {
      // Browsers remember that a module could not be loaded, so each try has another address.
      try { ({ Connection } = await import(script + (tries ? '#' + tries : ''))) } catch {
        if (!sendToConnection) receive({ lost: true })
        await new Promise(resolve => setTimeout(resolve, importPause))
      }
    }
    if (sendToConnection) return // the worker has answered meanwhile
    const connection = new Connection()
    own = () => connection.leave(receive)
    newWorker = null
    use(data => {
      if (data.topics) connection.show(receive, data.topics)
      if (data.leave) connection.leave(receive)
      if (data.alive) connection.alive(receive)
      if (data.again) connection.again()
    })
  }
  // Browsers allow few connections to one server, so this page's must end before the next page needs one.
  addEventListener('beforeunload', () => {
    if (!own) return
    leaving = true
    pause()
    setTimeout(() => document.hidden || resume(), 3_000) // the page is still here: the link was a download
  })
  // A worker that ends while a page connects to it never answers.
  const late = setTimeout(alone, workerAnswers)
  const share = () => {
    const worker = new SharedWorker(script, { type: 'module', name: 'arbe' })
    worker.onerror = alone
    worker.port.onmessage = ({ data }) => {
      if (!data.ready) return receive(data)
      clearTimeout(late)
      own?.()
      own = null
      answered = Date.now()
      newWorker = () => {
        worker.port.postMessage({ leave: true }) // in case it is only slow
        answered = Date.now()
        share()
      }
      use(data => worker.port.postMessage(data))
    }
  }
  try { share() } catch { alone() }
}
connect()

// Stop and Run again post without leaving the page. The outcome arrives with the log; an error is shown as a notice.
function notify(words) {
  const notice = $('#notice')
  notice.textContent = words
  clearTimeout(notice.timer)
  notice.timer = setTimeout(() => { notice.textContent = '' }, 8_000)
}
document.addEventListener('submit', async event => {
  const form = event.target
  if (!form.matches('.stop, .again')) return
  event.preventDefault()
  form.classList.add('posting')
  let words = ''
  try {
    const answer = await fetch(form.action, { method: 'POST', headers: { 'Datastar-Request': 'true' }, body: new URLSearchParams(new FormData(form)) })
    if (!answer.ok) words = await answer.text()
    else if (form.elements.entry) form.elements.entry.value = newID() // the next click runs another command
    else form.reset() // no key stays on the page
  } catch { words = 'The server cannot be reached. Try again in a moment.' }
  if (words) notify(words)
  if (words || form.matches('.again')) form.classList.remove('posting')
})

// A quiet server sends a beat every twenty seconds, so that two missed ones show a lost connection, which a browser does not
// report. A hidden tab follows nothing.
// The worker answers each report, so that a page notices when it has ended, as it does with the last page before this one.
const silence = 45_000, workerSilence = 16_000, hiddenFor = 2_000
let hiding = 0
setInterval(() => {
  // Browsers do not report every change of what is visible, for example not that of a page that is still loading.
  if (paused && !leaving && !document.hidden) resume()
  if (paused || !shown) return
  sendToConnection({ alive: true })
  if (newWorker && Date.now() - answered > workerSilence) return newWorker()
  // A topic that does not become live, although the connection is there, is asked for again.
  if (Date.now() - heard > silence || waiting.size && Date.now() - asked > silence) reconnect()
}, 5_000)
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding)
  if (document.hidden) hiding = setTimeout(pause, hiddenFor)
  else if (paused) resume()
})
addEventListener('online', () => { reconnect(); deliverLate() })
// A page that the reader leaves may be kept for going back, and would keep its topics.
addEventListener('pagehide', () => { leaving = true; pause() })
addEventListener('pageshow', event => {
  if (!event.persisted) return
  if (!document.hidden) resume()
  for (const id of $$('.fork input')) id.value = newID() // a reader who comes back may want another fork
})

// ---- Reading: follow the end, or keep the reading position whatever is added above or below.

const scroller = $('#scroller'), log = $('#log'), jump = $('#jump')
// The scroller's column is reversed, so that its end is at 0 and everything above it is negative.
const atEnd = () => scroller.scrollTop > -32 && !$('#newer')
const toEnd = () => { if (scroller) scroller.scrollTop = 0 }
let anchor = null, following = true, seen = nextSeq()

// remember records the reading position: the first visible entry, and its place on the screen.
function remember() {
  following = atEnd()
  if (following) seen = nextSeq()
  const top = scroller.getBoundingClientRect().top
  const element = $$('[data-entry]', log).find(e => e.getBoundingClientRect().bottom > top)
  anchor = element && { element, offset: element.getBoundingClientRect().top, scrolled: scroller.scrollTop }
  pill()
}

// hold restores the reading position after the page has changed, except for what the reader has scrolled since.
function hold() {
  if (following && atEnd()) toEnd()
  else if (anchor?.element.isConnected) {
    const top = anchor.element.getBoundingClientRect().top // read before scrollTop, because it updates the layout
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


// prune removes entries far from the reading position once there are many, so that a page that is open or scrolled through for
// a long time stays fast. They are loaded again when the reader scrolls back.
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
  const seqOf = entry => Number(entry.id.slice(1))
  if (all.length - at > keptEntries + 50) cut(all.slice(at + keptEntries), 'newer', seqOf(all[at + keptEntries]) - 1)
  if (at > keptEntries + 50) cut(all.slice(0, at - keptEntries), 'older', seqOf(all[at - keptEntries - 1]) + 1)
}

// announce reads new entries to screen readers. The log itself is no live region, because they would then read every
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

// markDays puts the day above the first entry of each day, in the reader's time zone.
function dayWord(date) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86_400_000)
  return days === 0 ? 'Today' : days === 1 ? 'Yesterday' : dayWords.format(date)
}
function markDays() {
  let last = ''
  for (const entry of $$('[data-entry]', log)) {
    const date = new Date($('time', entry).dateTime), day = date.toDateString()
    let mark = entry.previousElementSibling
    if (!mark?.matches('.day')) mark = null
    if (day === last) mark?.remove()
    else {
      if (!mark) {
        mark = document.createElement('p')
        mark.className = 'day'
        entry.before(mark)
      }
      const word = dayWord(date)
      if (mark.textContent !== word) mark.textContent = word
    }
    last = day
  }
}

// reachable makes exactly the elements that scroll sideways reachable with Tab, so that the keyboard can scroll them.
function reachable() {
  const regions = $$('.chat pre, .chat .table, .screen', log)
  const wide = regions.map(e => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)
  regions.forEach((e, i) => {
    // The server makes all of them reachable, because it cannot know which are too wide.
    const named = e.hasAttribute('aria-label')
    if (wide[i] ? named : !named && e.tabIndex !== 0) return
    if (wide[i]) {
      e.tabIndex = 0
      e.setAttribute('role', 'region')
      e.setAttribute('aria-label', e.matches('.table') ? 'Table' : e.matches('.screen') ? 'Output' : 'Code')
    } else for (const name of ['tabindex', 'role', 'aria-label']) e.removeAttribute(name)
  })
}

// After a reload the reading position is restored. If it is on an older page, that page is opened.
const placeKey = 'arbe:place:' + location.pathname
const session = { get: key => { try { return JSON.parse(sessionStorage.getItem(key)) } catch { return null } },
  set: (key, value) => { try { sessionStorage.setItem(key, JSON.stringify(value)) } catch { /* then it opens at the end */ } } }
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
  scroller.scrollTop += entry.getBoundingClientRect().top - place.offset
  return true
}
if (scroller) addEventListener('pagehide', () => {
  if (session.get(placeKey)?.led) return
  session.set(placeKey, following || !anchor?.element.isConnected ? null : { seq: Number(anchor.element.id.slice(1)), offset: anchor.offset })
})

// arrive scrolls to the entry that the address names, and opens the page that has it if this one does not.
function arrive() {
  if (comeBack()) return remember()
  const seq = location.hash.match(/^#e(\d+)$/)?.[1]
  if (!seq) return remember()
  const target = document.getElementById('e' + seq)
  if (target) target.scrollIntoView({ block: 'center' })
  else if (new URLSearchParams(location.search).get('at') !== seq) location.replace(`${location.pathname.replace(/\/entries$/, '')}?at=${seq}#e${seq}`)
  remember()
}

if (scroller) {
  let asked = false
  scroller.addEventListener('scroll', () => {
    if (asked) return
    asked = true
    requestAnimationFrame(() => { asked = false; remember() })
  }, { passive: true })
  new ResizeObserver(() => { hold(); reachable() }).observe($('.content', scroller))
  markDays()
  new MutationObserver(changes => { announce(changes); prune(); markDays(); hold(); sweepOutbox(); show() }).observe(log, { childList: true })
  jump.addEventListener('click', event => {
    if ($('#newer')) return // this page lacks the end of the log, and the link leads there
    event.preventDefault()
    toEnd()
  })
  arrive()
  addEventListener('hashchange', arrive)
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
    time.textContent = s < 60 ? s + 's' : s < 3600 ? Math.floor(s / 60) + 'm ' + (s % 60) + 's' : Math.floor(s / 3600) + 'h ' + Math.floor(s % 3600 / 60) + 'm'
  }
}
tick()
tickElapsed()
showRunning()
setInterval(tick, 20_000)
setInterval(tickElapsed, 1_000)

// ---- An entry's actions.

const said = (button, word) => {
  const title = button.title
  button.title = word
  setTimeout(() => { button.title = title }, 1500)
}
// Tab stops once at the places, and the arrow keys move between them.
function rove() {
  const all = places(), stop = all.find(p => p === document.activeElement) ?? all.find(p => p.hasAttribute('aria-current')) ?? all[0]
  for (const place of all) place.tabIndex = place === stop ? 0 : -1
}
rove()
$('#places-column')?.addEventListener('keydown', event => {
  const all = places(), at = all.indexOf(document.activeElement)
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]
  if (at < 0 || to === undefined || !all[to]) return
  event.preventDefault()
  all[to].focus()
  rove()
})

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
  if (event.target.closest('.rename')) rename()
  const output = event.target.closest('.copy-output')
  if (output) copyOutput(output)
  const wrap = event.target.closest('.wrap-output')
  if (wrap) wrap.setAttribute('aria-pressed', wrap.closest('.command').classList.toggle('wrapped'))
  if (touch && !event.target.closest('a, button, input, summary')) {
    const entry = event.target.closest('.entry')
    for (const other of $$('.entry.chosen')) if (other !== entry) other.classList.remove('chosen')
    entry?.classList.toggle('chosen')
  }
  for (const menu of $$('details.menu[open]')) if (!menu.contains(event.target)) menu.open = false
})
// On a wide screen the details button hides and shows their column. Elsewhere it opens them as a drawer.
const wide = matchMedia('(min-width: 1280px)')
$('.context-button')?.addEventListener('click', event => {
  if (!wide.matches) return
  event.preventDefault()
  const { cookie } = event.currentTarget.dataset
  const folded = $('#context').classList.toggle('folded')
  document.cookie = `${cookie}=${folded ? 'folded' : 'open'}; path=/; max-age=31536000; samesite=lax`
})

// The title is edited in place, after a click on the pen or a double click on the title.
const renaming = $('#rename')
function rename() {
  renaming.hidden = false
  renaming.elements.name.value = $('#thread-head h1').textContent
  renaming.elements.name.select()
}
function endRenaming() {
  renaming.hidden = true
  $('.rename')?.focus()
}
document.addEventListener('dblclick', event => { if (event.target.closest('#thread-head h1')) rename() })
renaming?.addEventListener('keydown', event => {
  if (event.key === 'Escape') endRenaming()
})
renaming?.addEventListener('submit', async event => {
  event.preventDefault()
  const name = renaming.elements.name.value
  try {
    const answer = await fetch(renaming.action, { method: 'POST', headers: { 'Datastar-Request': 'true' }, body: new URLSearchParams({ name }) })
    if (!answer.ok) return notify(await answer.text())
    endRenaming()
  } catch { notify('The server cannot be reached. Try again in a moment.') }
})

// copyOutput copies a command's output. If the page shows only the end of it, it loads the whole from the server.
async function copyOutput(button) {
  const command = button.closest('.command')
  try {
    let text = $$('.output .screen', command).map(screen => screen.innerText).join('\n')
    if ($('.output .show-all', command)) {
      const answer = await fetch($('.tools a[download]', command).href, { headers: { 'Datastar-Request': 'true' } })
      if (!answer.ok) throw new Error('the server answers ' + answer.status)
      text = (await answer.text()).replace(/\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))/g, '')
    }
    await navigator.clipboard.writeText(text)
    said(button, 'Copied')
    notify('Copied.')
  } catch { notify('The browser does not let this page copy. Download the output instead.') }
}

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
    e: () => jump?.click(),
    x: () => $$('.foot .stop button, .writing .stop button').at(-1)?.click(),
    '?': () => $('#sheet')?.togglePopover(),
    h: () => { if (before === 'g') $('.place.home')?.click() },
  }
  if (keys[event.key]) {
    if (event.key !== 'h' || before === 'g') event.preventDefault()
    keys[event.key]()
  }
  before = event.key
})
// "New" links to the text box of the house's page, so the browser focuses it. On that page the drawer with the link must be
// closed too.
$('[data-new]')?.addEventListener('click', () => {
  if ($('#starter-text')) $('#places-column:popover-open')?.hidePopover()
})
