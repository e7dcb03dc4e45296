// The outbox: messages wait here until they are in the log, and survive a reload. Their ids make it harmless to send them
// twice, so each is sent until the server answers, however long that takes.

import { $, $$, nextSeq, post, thread, told } from './dom.js'
import { nameOfFile } from './files.js'
import { store } from './storage.js'

const outbox = $('#outbox')
const firstTry = 500, lastTry = 5_000

// All tabs of the thread share the stored outbox, so each tab adds and removes only its own messages.
const outboxKey = 'outbox:' + thread
const stored = () => store.get(outboxKey) ?? []
const keep = message => store.set(outboxKey, [...stored().filter(one => one.id !== message.id), message])
const drop = id => store.set(outboxKey, stored().filter(one => one.id !== id))

// Each file is an artifact's id, a space, and a name. With queue, the message waits for the coding agent's current work.
export function send(id, text, reply = '', files = [], queue = false) {
  const form = $('#outbox-item').content.firstElementChild.cloneNode(true)
  form.id = 'out-' + id
  form.elements.entry.value = id
  form.elements.text.value = text
  form.elements.reply.value = reply
  $('.outgoing-text', form).textContent = text
  const add = (name, value) => form.append(Object.assign(document.createElement('input'), { type: 'hidden', name, value }))
  for (const value of files) add('file', value)
  if (queue) add('queue', 'true')
  $('.outgoing-files', form).textContent = files.map(nameOfFile).join(', ')
  outbox.append(form)
  keep({ id, text, reply, files, queue })
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
    answer = await post(form.action, new FormData(form), AbortSignal.timeout(60_000))
    text = await answer.text()
  } catch { /* no answer */ }
  form.posting = false
  if (!form.isConnected) return // its writer took it back
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

// deliverLate sends late messages immediately when the server is back.
const deliverLate = () => { for (const form of $$('.outgoing.late:not(.refused)', outbox ?? document)) deliver(form) }

// withdraw takes a message out of the outbox when its writer wants to change it.
export function withdraw(form) {
  clearTimeout(form.again)
  drop(form.elements.entry.value)
  form.remove()
}

// sweepOutbox removes messages that the log shows.
function sweepOutbox() {
  const next = nextSeq()
  for (const form of $$('form.sent', outbox)) if (Number(form.dataset.seq) < next) form.remove()
}

if (outbox) {
  for (const { id, text, reply, files, queue } of stored()) send(id, text, reply, files, queue)
  outbox.addEventListener('submit', event => {
    event.preventDefault()
    deliver(event.target)
  })
}
told('logged', sweepOutbox)
told('connected', deliverLate)
addEventListener('online', deliverLate)
