// The one connection of this browser to the server, for all its tabs. It runs as a shared worker. In a browser without shared
// workers, each tab runs its own. A tab says which topics it shows, with their cursors (web/connection.go explains topics).
// An event of a topic goes to all tabs that show it. An event that arrives twice is harmless, so in case of doubt the browser
// connects again from the oldest cursor.

const firstPause = 300, lastPause = 5_000
// A tab that shows something reports regularly. A tab that has not reported for this long is taken to have crashed.
const tabLasts = 60_000

export class Connection {
  #topics = new Map() // name → { cursor, tabs: Set }
  #tabs = new Map() // tab → the time of its last report
  #request = null
  #pause = firstPause
  #timer = 0

  // show sets the topics that a tab shows: cursors by name.
  show(tab, topics) {
    this.#tabs.set(tab, Date.now())
    let changed = false
    for (const [name, topic] of this.#topics) {
      if (name in topics || !topic.tabs.delete(tab) || topic.tabs.size) continue
      this.#topics.delete(name)
      changed = true
    }
    for (const [name, cursor] of Object.entries(topics)) {
      const topic = this.#topics.get(name)
      if (!topic) {
        this.#topics.set(name, { cursor, live: false, tabs: new Set([tab]) })
        changed = true
        continue
      }
      topic.tabs.add(tab)
      if (topic.cursor !== cursor) {
        topic.cursor = older(topic.cursor, cursor)
        changed = true
      } else if (topic.live && name.startsWith('thread/')) {
        // The cursor of a thread is its last entry. Output of a running command, a build, and the thread's head change
        // without an entry, and only the server has their present state.
        changed = true
      } else if (topic.live) tab({ t: name })
    }
    if (changed) this.again()
  }

  // leave removes a tab. After the last tab, the connection ends at once and not by a timer. A browser may freeze a page that
  // it leaves: then the page's timers stop, but its connection stays open.
  leave(tab) {
    this.show(tab, {})
    this.#tabs.delete(tab)
    if (this.#topics.size) return
    clearTimeout(this.#timer)
    this.#connect()
  }

  // alive records a tab's report, and removes tabs that have crashed.
  alive(tab) {
    this.#tabs.set(tab, Date.now())
    for (const [other, heard] of this.#tabs) if (Date.now() - heard > tabLasts) this.leave(other)
  }

  // again connects again after a pause, so that several changes need only one new connection.
  again(pause = 20) {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#connect(), pause)
  }

  async #connect() {
    this.#request?.abort()
    this.#request = null
    if (!this.#topics.size) return
    const request = this.#request = new AbortController()
    const query = new URLSearchParams()
    for (const [name, topic] of this.#topics) {
      topic.live = false
      query.append('t', name + '/' + topic.cursor)
    }
    try {
      const answer = await fetch('/live?' + query, { signal: request.signal, cache: 'no-store' })
      if (!answer.ok) throw new Error('the server answers ' + answer.status)
      await this.#read(answer.body.getReader())
    } catch { /* handled like the end of the answer */ }
    if (this.#request !== request) return // replaced by another connection
    this.#request = null
    if (!this.#topics.size) return
    for (const tab of this.#tabs.keys()) tab({ lost: true })
    this.again(this.#pause)
    this.#pause = Math.min(this.#pause * 1.7, lastPause)
  }

  async #read(reader) {
    const decoder = new TextDecoder()
    let text = ''
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      this.#pause = firstPause
      text += decoder.decode(value, { stream: true })
      const lines = text.split('\n')
      text = lines.pop()
      let beat = true
      for (const line of lines) {
        if (!line.startsWith('data: ')) continue
        beat = false
        this.#heard(JSON.parse(line.slice(6)))
      }
      if (beat) for (const tab of this.#tabs.keys()) tab({ beat: true })
    }
  }

  #heard(event) {
    const topic = this.#topics.get(event.t)
    if (!topic) return
    topic.live = true
    if (event.c) topic.cursor = event.c
    if (event.end) this.#topics.delete(event.t)
    for (const tab of topic.tabs) tab(event)
    if (!this.#topics.size) this.again()
  }
}

// older returns the cursor from which two tabs can continue: the lower position, or an empty one if the two are different digests.
function older(a, b) {
  const numbers = /^\d+$/.test(a) && /^\d+$/.test(b)
  return numbers ? String(Math.min(Number(a), Number(b))) : a === b ? a : ''
}

if (globalThis.SharedWorkerGlobalScope && self instanceof SharedWorkerGlobalScope) {
  const connection = new Connection()
  self.onconnect = ({ ports: [port] }) => {
    const tab = event => port.postMessage(event)
    port.onmessage = ({ data }) => {
      if (data.topics) connection.show(tab, data.topics)
      if (data.leave) connection.leave(tab)
      if (data.alive) {
        connection.alive(tab)
        tab({ here: true })
      }
      if (data.again) connection.again()
    }
    tab({ ready: true })
  }
}
