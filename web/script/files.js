// Files: each is uploaded when it is chosen. It waits as a chip, which the reader can remove, until the message is sent.

import { $, $$, newID, thread } from './dom.js'
import { store } from './storage.js'

// The page has one form that takes files: a thread's composer, or the box that starts a thread. Files of a message that starts a
// thread belong to the house.
const form = $('#composer, .starter'), chipList = form && $('.chips', form)
const scope = thread ? { thread_id: thread } : { house_id: form?.dataset.house }
export const chipsKey = draft => 'files:' + draft
const uploadTries = 4, firstTry = 500

// nameOfFile returns the name of a file that is an artifact's id, a space, and a name.
export const nameOfFile = value => value.slice(value.indexOf(' ') + 1)

// chosenFiles returns the chips of the waiting files.
export const chosenFiles = () => $$('li', chipList)

// clearFiles removes them.
export function clearFiles() {
  for (const chip of chosenFiles()) chip.remove()
  chipsChanged()
}

// chipsChanged shows the chips and stores those that are ready. It allows a message with files to have no text.
function chipsChanged() {
  const chips = $$('li', chipList)
  chipList.hidden = !chips.length
  $('textarea', form).required = !chips.length
  $('.form-error', form).textContent = ''
  store.set(chipsKey(form.dataset.draft), chips.map(chip => chip.dataset.file).filter(Boolean))
}

// addChip adds a chip. done makes it ready, failed says why it is not, and gone is called when it is removed.
export function addChip(name, gone = () => {}) {
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
    $('.attach', form).focus()
  })
  chip.append(label, state, remove)
  chipList.append(chip)
  chipsChanged()
  return {
    done(value) { chip.dataset.file = value; state.textContent = ''; chipsChanged() },
    failed(why) { chip.classList.add('refused'); state.textContent = why },
  }
}

// notReady reports whether a chosen file is not uploaded. If so, it shows why the message cannot be sent yet.
export function notReady() {
  const waits = chosenFiles().some(chip => !chip.dataset.file)
  if (waits) $('.form-error', form).textContent = 'Not sent yet. Wait until all files are there, or remove those that are not.'
  return waits
}

// upload stores a file as an artifact. The artifact's id makes it harmless to try again.
async function upload(file) {
  const left = new AbortController(), chip = addChip(file.name, () => left.abort())
  const name = [...file.name.replace(/\p{C}/gu, '')].slice(-200).join('').trim()
  const query = new URLSearchParams({ ...scope, id: newID(), label: name })
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
  if (files.length > room) $('.form-error', form).textContent = `A message may have ${most} files.`
}

// carries reports whether a paste or a drag has files. Text that is copied from an office program has a picture of itself, too.
const carries = data => data.types.includes('Files') && !data.types.includes('text/plain')

if (chipList) {
  form.addEventListener('paste', event => {
    if (!carries(event.clipboardData)) return
    event.preventDefault()
    attach([...event.clipboardData.files])
  })
  for (const type of ['dragenter', 'dragover', 'dragleave', 'drop']) form.addEventListener(type, event => {
    if (!event.dataTransfer.types.includes('Files')) return
    event.preventDefault() // without this, the browser opens a dropped file
    const leaves = type === 'dragleave' && !form.contains(event.relatedTarget)
    form.classList.toggle('drop', type !== 'drop' && !leaves)
    if (type === 'drop') attach([...event.dataTransfer.files])
  })
  for (const value of store.get(chipsKey(form.dataset.draft)) ?? []) addChip(nameOfFile(value)).done(value)
  $('.attach', form).addEventListener('click', () => $('[type=file]', form).click())
  $('[type=file]', form).addEventListener('change', event => {
    attach([...event.target.files])
    event.target.value = '' // so that the same file can be chosen again
    $('textarea', form).focus()
  })
}
