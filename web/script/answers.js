// Who will answer the message that is being written. The server decides, with the same code as when the message is sent.

import { $, post, thread, told } from './dom.js'

const composer = $('#composer'), area = $('#composer-text')
const pause = 200
let shown = '', timer = 0, asking = null

// Asks the server only if a mention or a reply may have changed the answer.
const key = () => {
  const text = area.value
  return [composer.elements.reply.value, $('#answering')?.dataset.answering, /@|^[!/]/.test(text) ? text : ''].join('\n')
}

async function ask() {
  const now = key()
  if (now === shown) return
  asking?.abort()
  const mine = asking = new AbortController()
  try {
    const answer = await post(`/threads/${thread}/answers`, { text: area.value, reply: composer.elements.reply.value }, mine.signal)
    if (!answer.ok) return
    const line = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('#answers')
    if (!line || mine.signal.aborted) return
    $('#answers').replaceWith(line)
    shown = now
  } catch { /* the next change asks again */ }
}
const soon = () => {
  clearTimeout(timer)
  if (key() !== shown) timer = setTimeout(ask, pause)
}

if (composer) {
  shown = ['', $('#answering')?.dataset.answering, ''].join('\n') // the page's first state
  area.addEventListener('input', soon)
  told('patched', soon)
  told('replying', soon)
  soon() // for a text that survived a reload
}
