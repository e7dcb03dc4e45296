// Comments on a patch: a click on a line opens a field for a comment. Its text stays until it is sent.

import { $, $$, post, unreachable } from './dom.js'
import { notify } from './notice.js'
import { store } from './storage.js'

const form = $('.remarks')
const key = 'remarks:' + form?.dataset.remarks
const fields = () => $$('textarea', form)
let elsewhere = [] // comments on lines that this page does not show
const written = () => fields().filter(area => area.value.trim())

// nameOf is the name of the field for a line: its file, its hunk, and its number there.
function nameOf(line) {
  const hunk = line.closest('.hunk')
  return ['r', hunk.closest('.diff-file').dataset.file, hunk.dataset.hunk, $$('.dl', hunk).indexOf(line)].join('-')
}

// open returns the field for a line, and creates it if necessary.
function open(line) {
  const name = nameOf(line)
  const there = fields().find(area => area.name === name)
  if (there) return there
  const place = document.createElement('div'), area = document.createElement('textarea'), remove = document.createElement('button')
  place.className = 'remark'
  Object.assign(area, { name, rows: 2, maxLength: 20000, dir: 'auto', className: 'grows' })
  area.setAttribute('aria-label', 'Comment on line ' + (line.dataset.n || line.dataset.o))
  Object.assign(remove, { type: 'button', className: 'link', textContent: 'Remove' })
  remove.addEventListener('click', () => { place.remove(); keep() })
  place.append(area, remove)
  line.after(place)
  return area
}

function keep() {
  const all = written()
  store.set(key, [...elsewhere, ...all.map(area => [area.name, area.value])])
  const hint = $('.remarks-hint', form)
  hint.dataset.empty ??= hint.textContent
  hint.textContent = all.length === 0 ? hint.dataset.empty : all.length === 1 ? '1 comment' : all.length + ' comments, as one message'
}

// restore shows the comments that were written before the reader left the page.
function restore() {
  for (const one of store.get(key) ?? []) {
    const [name, text] = one, [, file, hunk, line] = name.split('-')
    const at = $(`.diff-file[data-file="${Number(file)}"] .hunk[data-hunk="${Number(hunk)}"]`, form)
    const area = line === undefined ? at && $('details.remark textarea', at) : at && $$('.dl', at)[line] && open($$('.dl', at)[line])
    if (!area) {
      elsewhere.push(one)
      continue
    }
    area.value = text
    for (let fold = area.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true
  }
  keep()
}

if (form) {
  form.addEventListener('click', event => {
    const line = event.target.closest('.dl:not(.said)')
    if (line && !getSelection().toString()) open(line).focus()
  })
  form.addEventListener('input', keep)
  form.addEventListener('submit', async event => {
    event.preventDefault()
    const button = $('.remarks-foot button', form)
    button.disabled = true
    let words = unreachable
    try {
      const answer = await post(form.action, new FormData(form))
      words = await answer.text()
      if (answer.ok) {
        store.set(key, elsewhere)
        location.assign(words)
        return
      }
    } catch { /* the words say it */ }
    button.disabled = false
    notify(words)
  })
  restore()
}
