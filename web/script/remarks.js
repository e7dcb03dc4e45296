// Comments on a patch: a click on a line opens a field for a comment. Its text stays until it is sent.

import { $, $$, post, thread, unreachable } from './dom.js'
import { notify } from './notice.js'
import { store } from './storage.js'

const form = $('.remarks')
const key = 'remarks:' + form?.dataset.remarks
const fields = () => $$('textarea', form)
let elsewhere = [] // comments on lines that this page does not show
const written = () => fields().filter(area => area.value.trim())

// A line's number in its hunk is an attribute in the side-by-side view, and otherwise the line's index.
const numberOf = line => Number(line.dataset.l ?? $$('.dl', line.closest('.hunk')).indexOf(line))
const lineAt = (hunk, n) => $('.dl[data-l]', hunk) ? $(`.dl[data-l="${n}"]`, hunk) : $$('.dl', hunk)[n]

// nameOf is the name of the field for a line: its file, its hunk, and its number there.
function nameOf(line) {
  const hunk = line.closest('.hunk')
  return ['r', hunk.closest('.diff-file').dataset.file, hunk.dataset.hunk, numberOf(line)].join('-')
}

const fileOf = line => $('.diff-name', line.closest('.diff-file')).textContent
// aboutOf describes what a field is about, so that its line is found after the files have changed.
function aboutOf(area) {
  const hunk = area.closest('.hunk'), n = area.name.split('-')[3]
  const line = hunk && lineAt(hunk, n ?? 0)
  return line && { file: fileOf(line), text: line.textContent, hunk: n === undefined, at: Number(line.dataset.n || line.dataset.o) }
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
  ;(line.dataset.side === 'l' ? line.nextElementSibling : line).after(place)
  return area
}

// lose lists a comment whose line is gone, so that its text is kept.
let lost = 0
function lose(text, about) {
  const list = $('.lost-remarks', form), place = document.createElement('div'), label = document.createElement('label')
  const area = document.createElement('textarea'), of = document.createElement('input'), remove = document.createElement('button')
  const words = about.file + (about.at ? ', line ' + about.at : '')
  label.textContent = words
  Object.assign(area, { name: 'o-' + lost, id: 'lost-' + lost, value: text, rows: 2, maxLength: 20000, dir: 'auto', className: 'grows' })
  area.about = about
  label.htmlFor = area.id
  Object.assign(of, { type: 'hidden', name: 'p-' + lost++, value: words })
  Object.assign(remove, { type: 'button', className: 'link', textContent: 'Remove' })
  remove.addEventListener('click', () => { place.remove(); keep() })
  place.className = 'remark'
  place.append(label, area, of, remove)
  list.append(place)
}

// The thread's page says how many comments wait, and leads to them.
const waitingKey = 'remarks-of:' + (form?.dataset.thread ?? thread)
function keep() {
  const all = written(), n = all.length + elsewhere.length
  store.set(key, [...elsewhere, ...all.map(area => [area.name, area.value, area.about ?? aboutOf(area)])])
  const waiting = store.get(waitingKey) ?? {}
  if (n) waiting[key] = { n, path: location.pathname + location.search }
  else delete waiting[key]
  store.set(waitingKey, Object.keys(waiting).length ? waiting : null)
  for (const list of $$('.lost-remarks', form)) list.hidden = !$('.remark', list)
  const hint = $('.remarks-hint', form)
  hint.dataset.empty ??= hint.textContent
  hint.textContent = all.length === 0 ? hint.dataset.empty : all.length === 1 ? '1 comment' : all.length + ' comments, as one message'
}

// lineOf finds the line that a comment is about, the nearest one if several have its text.
function lineOf(about) {
  const file = $$('.diff-file', form).find(f => $('.diff-name', f).textContent === about.file)
  const same = file ? $$('.dl:not(.none)', file).filter(l => l.textContent === about.text) : []
  const away = line => Math.abs(Number(line.dataset.n || line.dataset.o) - about.at)
  return same.sort((a, b) => away(a) - away(b))[0]
}

// restore shows the comments that were written before the reader left the page.
function restore() {
  const live = form.hasAttribute('data-live')
  for (const one of store.get(key) ?? []) {
    const [name, text, about] = one, [, file, hunk, line] = name.split('-')
    const at = $(`.diff-file[data-file="${Number(file)}"] .hunk[data-hunk="${Number(hunk)}"]`, form)
    let area
    if (live && about) {
      const found = lineOf(about)
      area = found && (about.hunk ? $('details.remark textarea', found.closest('.hunk')) : open(found))
    } else if (line === undefined) area = at && $('details.remark textarea', at)
    else area = at && lineAt(at, line) && open(lineAt(at, line))
    if (!area && live && about && !form.hasAttribute('data-only')) lose(text, about)
    else if (!area) elsewhere.push(one)
    else {
      area.value = area.value.trim() ? area.value + '\n' + text : text
      for (let fold = area.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true
    }
  }
  keep()
}

if (form) {
  form.addEventListener('click', event => {
    const line = event.target.closest('.dl:not(.said, .none)')
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
        for (const area of fields()) area.value = ''
        keep()
        location.assign(words)
        return
      }
    } catch { /* the words say it */ }
    button.disabled = false
    notify(words)
  })
  restore()
}

const line = $('#waiting-remarks')
if (line) {
  const [first] = Object.values(store.get(waitingKey) ?? {})
  if (first) {
    $('span', line).textContent = first.n === 1 ? '1 comment on changes is not sent.' : first.n + ' comments on changes are not sent.'
    $('a', line).href = first.path
    line.hidden = false
  }
}
