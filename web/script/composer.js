// Writing: Enter sends, and the text survives a reload.

import { $, $$, newID, post, tell, thread, touch, unreachable } from './dom.js'
import { addChip, chipsKey, chosenFiles, clearFiles, nameOfFile, notReady } from './files.js'
import { notify } from './notice.js'
import { send, withdraw } from './outbox.js'
import { editLast, isEditing, keepEdit, keptEdit, leaveMessage, resumeEdit, saveMessage } from './revise.js'
import { store } from './storage.js'

const composer = $('#composer'), outbox = $('#outbox')
const canSize = CSS.supports('field-sizing', 'content')
const grow = area => {
  if (canSize) return
  area.style.height = 'auto'
  area.style.height = area.scrollHeight + 'px'
}

for (const form of $$('form[data-draft]')) {
  const area = $('textarea', form), key = 'draft:' + form.dataset.draft
  const changed = () => {
    if (form === composer && isEditing()) keepEdit(area.value) // it is no draft: it must not become a message
    else store.set(key, area.value)
    grow(area)
    form.classList.toggle('shell', /^\s*(!|\/run(\s|$))/.test(area.value))
  }
  // Some browsers restore a field after a reload. The restored text of an edit must not become the draft.
  if (form === composer && keptEdit()) area.value = store.get(key) ?? ''
  else area.value ||= store.get(key) ?? ''
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
    } else if (event.key === 'ArrowUp' && area.value === '' && form === composer && !$('.chips li', form) && editLast()) event.preventDefault()
    else if (event.key === 'Escape' && form === composer && isEditing()) leaveMessage()
    else if (event.key === 'Escape') area.blur()
  })
  form.clear = () => { area.value = ''; changed() }
}

resumeEdit()

// A draft of the house's page is removed by the page of the thread that it starts: the next page that opens with the focus in
// the composer. A refused text never opens that page, so it keeps its draft.
const starter = $('.starter')
if (starter) {
  // A reader who comes back to this page starts another thread. So the form gets new ids, and loses the text whose draft was
  // removed. Until the server has answered, sending again is a retry and keeps the ids.
  let used = performance.getEntriesByType('navigation')[0]?.type === 'back_forward'
  starter.addEventListener('submit', event => {
    if (notReady()) return event.preventDefault()
    for (const sent of $$('[name=file]', starter)) sent.remove()
    for (const chip of chosenFiles()) starter.append(Object.assign(document.createElement('input'), { type: 'hidden', name: 'file', value: chip.dataset.file }))
    if (used && !store.get('starting')) for (const id of $$('[name=thread], [name=entry]', starter)) id.value = newID()
    used = true
    store.set('starting', starter.dataset.draft)
  })
  addEventListener('pageshow', () => { // the browser has restored the field before this event
    if (!used) return
    starter.elements.text.value = store.get('draft:' + starter.dataset.draft) ?? ''
    starter.elements.text.dispatchEvent(new Event('input'))
    if (!store.get(chipsKey(starter.dataset.draft))?.length) clearFiles()
  })
}
if (thread && location.hash === '#composer-text') {
  const draft = store.get('starting')
  if (draft) for (const key of ['draft:' + draft, chipsKey(draft)]) store.set(key, null)
  store.set('starting', null)
  $('#composer-text').focus()
  history.replaceState(null, '', location.pathname + location.search)
}

function takeBack(form) {
  const area = $('#composer-text')
  leaveMessage()
  area.value = form.elements.text.value + (area.value && '\n' + area.value)
  replyTo(form.elements.reply.value, 'A reply')
  for (const { value } of $$('[name=file]', form)) addChip(nameOfFile(value)).done(value)
  withdraw(form)
  area.dispatchEvent(new Event('input'))
  area.focus()
}

// The others who follow the thread see that somebody is writing. A failure is ignored, because nobody needs to know of it.
const typingEvery = 3_000
let typed = 0
$('#composer-text')?.addEventListener('input', event => {
  if (!event.isTrusted || !event.target.value.trim() || Date.now() - typed < typingEvery) return
  typed = Date.now()
  post(`/threads/${thread}/typing`).catch(() => {})
})

// choosesQueue reports whether the writer lets the message wait. The choice shows only while a coding agent works.
const choosesQueue = () => Boolean(composer.elements.queue?.checked && composer.elements.queue.checkVisibility())

// replyTo makes the next message a reply to the entry with this id, or no reply if the id is empty. The composer shows words.
function replyTo(id, words = '') {
  composer.elements.reply.value = id
  $('#replying').textContent = words
  $('.replying', composer).hidden = !id
  tell('replying')
}

// askAgain puts a question into the composer, where the reader can change it and ask again. The page may show only its beginning.
async function askAgain(button) {
  const area = $('#composer-text')
  try {
    const answer = await fetch(button.dataset.from)
    if (!answer.ok) return notify(await answer.text())
    const { text = '' } = await answer.json()
    leaveMessage()
    area.value = text
  } catch { return notify(unreachable) }
  replyTo(button.dataset.reply, 'Asking again')
  area.dispatchEvent(new Event('input'))
  area.focus()
}
if (composer) document.addEventListener('click', event => {
  const again = event.target.closest('.ask-again')
  if (again) askAgain(again)
  const reply = event.target.closest('.reply')
  if (reply) {
    leaveMessage()
    replyTo(reply.dataset.reply, 'In reply to ' + reply.dataset.to)
    $('#composer-text').focus()
  }
  if (event.target.matches('.not-replying')) replyTo('')
})

if (outbox) {
  composer.addEventListener('submit', event => {
    event.preventDefault()
    const text = $('#composer-text').value, chips = chosenFiles()
    if (isEditing()) return saveMessage(text)
    if (!text.trim() && !chips.length) return
    if (notReady()) return
    const most = Number(composer.dataset.max), size = new Blob([text]).size
    if (size > most) {
      const why = `This has ${(size / 2 ** 20).toFixed(1)} MiB, and a message may have ${Math.ceil(most / 2 ** 20)} MiB. Shorten it, or put it into a file.`
      $('#composer-error').textContent = 'Not sent. ' + why
      return
    }
    send(newID(), text, composer.elements.reply.value, chips.map(chip => chip.dataset.file), choosesQueue())
    if (composer.elements.queue) composer.elements.queue.checked = false
    replyTo('')
    clearFiles()
    composer.clear()
    tell('sent')
  })
  outbox.addEventListener('click', event => {
    if (event.target.matches('.edit')) takeBack(event.target.closest('form'))
  })
}
