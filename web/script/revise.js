// Editing and deleting one's own last message. It is edited where it was written, in the composer.

import { $, $$, me, newID, post, thread, told, unreachable } from './dom.js'
import { notify } from './notice.js'
import { session } from './storage.js'

const composer = $('#composer')
let editing = null // { address, before }: the message being edited, and what the composer had before

// An edit survives a reload of its tab: { address, text }.
const editKey = 'edit:' + thread
export const keptEdit = () => session.get(editKey)
export const keepEdit = text => session.set(editKey, { address: editing.address, text })

// last returns the reader's last message, if the page has the end of the log and the message is not deleted.
function last() {
  if (!me || !$('#live')) return null
  const entry = $$(`#log > .entry[data-author="${CSS.escape(me)}"]`).filter(e => $('.revise', e)).at(-1)
  return entry && !$('.unsaid', entry) ? entry : null
}

function mark() {
  const entry = last()
  for (const other of $$('#log > .entry.own-last')) if (other !== entry) other.classList.remove('own-last')
  entry?.classList.add('own-last')
}
told('patched', mark)
mark()

function put(text) {
  const area = $('#composer-text')
  area.value = text
  area.dispatchEvent(new Event('input'))
  area.focus()
}

async function begin(address) {
  try {
    const answer = await fetch(address + '/text', { headers: { 'Datastar-Request': 'true' } })
    if (!answer.ok) return notify(await answer.text())
    edit(address, await answer.text())
  } catch { notify(unreachable) }
}

function edit(address, text) {
  const area = $('#composer-text')
  editing = { address, before: editing?.before ?? area.value }
  composer.classList.add('editing')
  composer.elements.reply.value = '' // an edit is not a reply, and neither is the text after it
  $('#replying').textContent = 'Editing your message'
  $('.replying', composer).hidden = false
  put(text)
  area.setSelectionRange(area.value.length, area.value.length)
}

// resumeEdit goes on with the edit that a reload interrupted, when the composer has its draft.
export function resumeEdit() {
  const kept = composer && keptEdit()
  if (kept) edit(kept.address, kept.text)
}

// editLast begins to edit the reader's last message, and reports whether there is one.
export function editLast() {
  const entry = last()
  if (entry) begin($('.revise', entry).dataset.message)
  return Boolean(entry)
}

// isEditing reports whether the composer holds a message that was already sent.
export const isEditing = () => Boolean(editing)

// leaveMessage ends the edit, and restores what the composer had before.
export function leaveMessage() {
  if (!editing) return
  const { before } = editing
  editing = null
  session.set(editKey, null)
  composer.classList.remove('editing')
  $('.replying', composer).hidden = true
  $('#composer-error').textContent = ''
  put(before)
}

// saveMessage sends the edited text. The message changes with the log.
export async function saveMessage(text) {
  const { address } = editing
  try {
    const answer = await post(address + '/edit', { entry: newID(), text })
    if (!answer.ok) $('#composer-error').textContent = await answer.text()
    else if (editing?.address === address) leaveMessage()
  } catch { $('#composer-error').textContent = unreachable }
}

if (thread) document.addEventListener('click', async event => {
  const edit = event.target.closest('.revise')
  if (edit) begin(edit.dataset.message)
  if (event.target.matches('.not-replying') && editing) leaveMessage()
  const unsay = event.target.closest('.unsay')
  if (!unsay || !confirm('Delete this message? Nobody is shown its text any more.')) return
  try {
    const answer = await post(unsay.dataset.message + '/delete', { entry: newID() })
    if (!answer.ok) notify(await answer.text())
    else if (editing?.address === unsay.dataset.message) leaveMessage()
  } catch { notify(unreachable) }
})
