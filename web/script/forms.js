// What HTML forms cannot do: buttons that copy, and the menu of names and commands while people write. The page works without
// this script.

import { $, $$ } from './dom.js'

// ---- Copying: the values of fields, and code in messages, which gets its button under the pointer.

// copied copies a text and reports whether it succeeded. navigator.clipboard is missing on plain http. There, copied selects
// the text in a field and copies the selection.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch { /* the second way */ }
  const focused = document.activeElement, area = document.createElement('textarea')
  Object.assign(area, { value: text, readOnly: true, className: 'unseen' })
  document.body.append(area)
  area.select()
  const done = document.execCommand('copy')
  area.remove()
  focused?.focus()
  return done
}

document.addEventListener('click', async event => {
  const button = event.target.closest('[data-copies], .chat pre > .copy')
  if (!button) return
  const field = document.getElementById(button.dataset.copies)
  field?.select()
  const text = field ? field.value : $('code', button.parentElement)?.innerText ?? ''
  if (await copied(text)) button.textContent = 'Copied'
})

document.addEventListener('pointerover', event => {
  const pre = event.target.closest?.('.chat pre')
  if (!pre || $('.copy', pre)) return
  const copy = document.createElement('button')
  Object.assign(copy, { type: 'button', className: 'copy', textContent: 'Copy' })
  pre.prepend(copy)
})

// ---- The menu: a listbox whose options come from a template in the page, so that it needs no request.

const source = () => $('#completions')?.content // replaced when somebody joins or leaves
const folded = text => text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase()

// sought returns what can be completed at the cursor: "@" and some letters after a space, which are a path if they have a slash,
// or "/" and some letters at the beginning of the text.
function sought(area) {
  if (area.selectionStart !== area.selectionEnd) return null
  const before = area.value.slice(0, area.selectionStart)
  const command = before.match(/^\/([a-z-]*)$/)
  if (command) return { kind: 'command', from: 0, text: command[1] }
  const file = area.form.dataset.files && before.match(/(^|[\s(])@([^\s@]*\/[^\s@]*)$/u)
  if (file) return { kind: 'file', from: before.length - file[2].length - 1, text: file[2] }
  const name = before.match(/(^|[\s(])@([^\s@]{0,40}(?: [^\s@]{1,40})?)$/u)
  return name && { kind: 'name', from: before.length - name[2].length - 1, text: name[2] }
}

// matching returns the items of a kind that match a text: first those that begin with it, then those with a word that does.
// A bot, which is mentioned by its handle, is also found by its name.
function matching({ kind, text }) {
  const wanted = folded(text)
  const rank = item => Math.min(...[item.dataset.name, item.dataset.also ?? item.dataset.name].map(folded).map(name => {
    if (name.startsWith(wanted)) return 0
    return !text.includes(' ') && name.split(/[\s-]+/).some(word => word.startsWith(wanted)) ? 1 : 2
  }))
  return $$(`[data-kind="${kind}"]`, source()).map(item => [rank(item), item]).filter(([n]) => n < 2)
    .sort(([a], [b]) => a - b).slice(0, 8).map(([, item]) => item)
}

// filesIn returns the items of a folder of the thread's sandbox. It asks the server once, and again after a while.
const folders = new Map(), foldersFor = 30_000
function filesIn(address, folder) {
  const known = folders.get(folder)
  if (known && Date.now() - known.at < foldersFor) return known.items
  const items = fetch(address + encodeURIComponent(folder), { headers: { 'Datastar-Request': 'true' } })
    .then(answer => answer.ok ? answer.text() : '', () => '')
    .then(text => $$('[data-kind=file]', new DOMParser().parseFromString(text, 'text/html')).map(item => document.importNode(item, true)))
  folders.set(folder, { at: Date.now(), items })
  return items
}

// filesMatching returns the items that match a path that is being written.
async function filesMatching(address, text) {
  const cut = text.lastIndexOf('/') + 1, wanted = folded(text.slice(cut)), folder = text.slice(0, cut).replace(/^(\.?\/)+/, '').replace(/\/$/, '')
  const name = item => folded($('.completion', item).textContent)
  const items = (await filesIn(address, folder)).filter(item => name(item).includes(wanted))
  return items.sort((a, b) => !name(a).startsWith(wanted) - !name(b).startsWith(wanted)).slice(0, 8)
}

// The menu after a mere "@" ends with a way to the files.
function wayToFiles() {
  const item = document.createElement('li'), code = document.createElement('code'), about = document.createElement('span')
  item.dataset.kind = 'files'
  item.dataset.name = './'
  Object.assign(code, { className: 'completion', textContent: './' })
  Object.assign(about, { className: 'quiet', textContent: 'Files in the sandbox' })
  item.append(code, about)
  return item
}

function menuFor(area) {
  const list = document.createElement('ul')
  Object.assign(list, { id: area.id + '-menu', className: 'completions', hidden: true })
  list.setAttribute('role', 'listbox')
  area.before(list)
  // A textarea keeps its role, because a text of several lines cannot be a combobox.
  area.setAttribute('aria-autocomplete', 'list')
  area.setAttribute('aria-haspopup', 'listbox')
  area.setAttribute('aria-controls', list.id)
  let at = null, chosen = 0, dismissed = ''

  function close() {
    at = null
    list.hidden = true
    list.replaceChildren()
    area.removeAttribute('aria-activedescendant')
  }
  function choose(n) {
    const options = [...list.children]
    chosen = (n + options.length) % options.length
    for (const [i, option] of options.entries()) option.setAttribute('aria-selected', String(i === chosen))
    area.setAttribute('aria-activedescendant', options[chosen].id)
    options[chosen].scrollIntoView({ block: 'nearest' })
  }
  function update() {
    const now = sought(area)
    const key = now && now.kind + now.from
    if (key !== dismissed) dismissed = ''
    if (!now || dismissed) return close()
    if (now.kind === 'file') {
      if (at?.kind !== 'file') close()
      return filesMatching(area.form.dataset.files, now.text).then(items => {
        const still = sought(area)
        if (still?.kind === 'file' && still.text === now.text && !dismissed) show(now, items)
      })
    }
    const items = matching(now)
    show(now, now.kind === 'name' && !now.text && area.form.dataset.files ? [...items.slice(0, 7), wayToFiles()] : items)
  }
  function show(now, items) {
    if (!items.length) return close()
    at = now
    list.setAttribute('aria-label', { command: 'Commands', file: 'Files' }[now.kind] ?? 'People and bots')
    list.replaceChildren(...items.map((item, i) => {
      const option = item.cloneNode(true)
      option.id = list.id + '-' + i
      option.setAttribute('role', 'option')
      return option
    }))
    list.hidden = false
    choose(0)
  }
  function accept() {
    const { kind, name: chosenName } = list.children[chosen].dataset
    let name = (at.kind === 'command' ? '/' : '@') + chosenName + ' '
    if (kind === 'file') name = '`' + chosenName + '` '
    const further = kind === 'files' || kind === 'file' && chosenName.endsWith('/') // a folder, whose files come next
    if (further) name = '@' + chosenName
    const end = area.selectionStart
    area.setRangeText(name, at.from, end, 'end')
    close()
    area.dispatchEvent(new Event('input', { bubbles: true }))
    if (!further) close() // the input event opened it again if another name begins with this one
  }

  area.addEventListener('input', update)
  area.addEventListener('blur', close)
  area.addEventListener('selectionchange', () => { if (at && (sought(area)?.from !== at.from)) close() })
  // In the capturing phase, before the form's own handler: Enter must not send while the menu is open.
  area.form.addEventListener('keydown', event => {
    if (event.target !== area || !at || event.isComposing || event.metaKey || event.ctrlKey || event.altKey) return
    const keys = {
      ArrowDown: () => choose(chosen + 1),
      ArrowUp: () => choose(chosen - 1),
      Enter: event.shiftKey ? null : accept,
      Tab: event.shiftKey ? null : accept,
      Escape: () => { dismissed = at.kind + at.from; close() },
    }
    // A complete command is sent.
    if (event.key === 'Enter' && at.kind === 'command' && at.text === list.children[chosen].dataset.name) return close()
    if (!keys[event.key]) return
    event.preventDefault()
    event.stopPropagation()
    keys[event.key]()
  }, true)
  list.addEventListener('pointerdown', event => {
    const option = event.target.closest('[role=option]')
    if (!option) return
    event.preventDefault() // the text keeps the focus
    choose([...list.children].indexOf(option))
    accept()
  })
}

if (source()) for (const area of $$('form[data-draft] textarea')) menuFor(area)
