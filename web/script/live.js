// The connection, which all tabs of the browser share (connection.js). The page tells it which topics the page shows, and
// watches for silence.

import { $, nextSeq, tell, told } from './dom.js'
import { put } from './patches.js'

const script = $('meta[name=arbe-connection]').content
let cursors = {} // by topic
let waiting = new Set() // the topics that are not live yet
let heard = Date.now(), asked = heard // when the connection was last heard, and when it was last told the topics
let sendToConnection = null // sends a message to the connection
let answered = 0, newWorker = null // when the shared worker last answered, and how to start another one; null without a worker

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

let paused = document.hidden // a page may load in a hidden tab
let leaving = false // the browser is about to show another page
function pause() {
  paused = true
  shown = ''
  $('#typing')?.replaceChildren()
  $('#presence')?.replaceChildren()
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
    $('#presence')?.replaceChildren()
    delete document.documentElement.dataset.live
    waiting = new Set(shown.split(' '))
    return
  }
  heard = Date.now()
  if (!event.t || paused) return
  if (document.documentElement.dataset.connection) {
    delete document.documentElement.dataset.connection
    tell('connected')
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

// connect uses the shared worker. If the browser has no shared workers, or the worker does not answer in time, the page uses
// its own connection until the worker answers.
const workerAnswers = 5_000, importPause = 5_000
function connect() {
  let own = null // gives up the page's own connection
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
      // Browsers remember a module that could not be loaded, so each try uses another address.
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
  // Browsers allow few connections to one server, so this page's connection must end before the next page needs one.
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
        worker.port.postMessage({ leave: true }) // in case the worker is only slow
        answered = Date.now()
        share()
      }
      use(data => worker.port.postMessage(data))
    }
  }
  try { share() } catch { alone() }
}
connect()

// A quiet server sends a beat every twenty seconds. Two missed beats mean that the connection is lost, which a browser does
// not report. A hidden tab follows nothing. The worker answers each report, so that a page notices when the worker has ended.
// The worker ends with the last page that used it.
const silence = 45_000, workerSilence = 16_000, hiddenFor = 2_000
let hiding = 0
setInterval(() => {
  // Browsers do not report every change of visibility. They report none for a page that is still loading, for example.
  if (paused && !leaving && !document.hidden) resume()
  if (paused || !shown) return
  sendToConnection({ alive: true })
  if (newWorker && Date.now() - answered > workerSilence) return newWorker()
  // Ask again for a topic that does not become live although the connection works.
  if (Date.now() - heard > silence || waiting.size && Date.now() - asked > silence) reconnect()
}, 5_000)
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding)
  if (document.hidden) hiding = setTimeout(pause, hiddenFor)
  else if (paused) resume()
})
addEventListener('online', reconnect)
// A browser may keep a page that the reader leaves, for the Back button. Without this, the page would keep its topics.
addEventListener('pagehide', () => { leaving = true; pause() })
addEventListener('pageshow', event => {
  if (event.persisted && !document.hidden) resume()
})
told('logged', show)
