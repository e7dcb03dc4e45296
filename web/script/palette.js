// The palette: threads, direct messages, houses, people, pages and actions by their names, and a search for anything else.

import { $, $$ } from './dom.js'

const palette = $('#palette'), input = palette && $('input', palette), list = palette && $('ul', palette)
const most = 12

// choices are what the page leads to: [name, kind, how to go there, its shape].
function choices() {
  const places = $$('#mine a, #direct a, #places a').map(a => [$('.place-name', a)?.textContent ?? a.textContent, kindOf(a), () => a.click(), shapeOf(a)])
  const houses = $$('.switch a:not([aria-current])').map(a => [a.textContent, 'house', () => a.click(), icon('house')])
  const people = $$('li[data-kind="name"]', $('#completions')?.content ?? document.createElement('div')).map(p => [p.dataset.name, 'person', () => search('from:"' + p.dataset.name + '" '), icon('person')])
  return [
    ...places, ...houses, ...people,
    ['New thread', 'action', () => $('[data-new]').click(), icon('plus')],
    ['Keyboard', 'action', () => $('#sheet').showPopover()],
    ...$$('.themes button').map(b => [b.textContent + ' theme', 'action', () => b.click()]),
    ['Log out', 'action', () => $('form[action="/logout"] button').click()],
  ]
}

const kindOf = link => link.closest('#direct') ? 'direct message' : $('.status', link) ? 'thread' : 'page'
// shapeOf returns what a place begins with: the state of a thread, a person's disc, or an icon.
const shapeOf = link => {
  const shape = $('.status, .disc, .icon', link)?.cloneNode(true)
  $('.unseen', shape ?? document)?.remove()
  return shape
}
const icon = name => {
  const svg = $('svg.icon').cloneNode(true)
  $('use', svg).setAttribute('href', '#i-' + name)
  return svg
}
const search = words => { location.href = palette.dataset.search + '?q=' + encodeURIComponent(words) }

function show() {
  const words = input.value.trim().toLowerCase().split(/\s+/)
  const fit = choices().filter(([name]) => words.every(w => name.toLowerCase().includes(w))).slice(0, most)
  if (input.value.trim()) fit.push([`Search for “${input.value.trim()}”`, 'search', () => search(input.value.trim()), icon('search')])
  list.replaceChildren(...fit.map(([name, kind, go, shape], i) => {
    const item = document.createElement('li'), about = document.createElement('span'), mark = document.createElement('span')
    item.role = 'option'
    item.id = 'palette-' + i
    item.dir = 'auto'
    about.className = 'quiet'
    about.textContent = kind
    mark.className = 'shape'
    mark.ariaHidden = 'true'
    if (shape) mark.append(shape)
    item.append(mark, name, about)
    item.addEventListener('click', () => { palette.close(); go() })
    return item
  }))
  choose(0)
}

function choose(at) {
  const all = [...list.children]
  all.forEach((item, i) => item.setAttribute('aria-selected', i === at))
  if (all[at]) {
    input.setAttribute('aria-activedescendant', all[at].id)
    all[at].scrollIntoView({ block: 'nearest' })
  } else input.removeAttribute('aria-activedescendant')
}

if (palette) {
  document.addEventListener('keydown', event => {
    if (event.key.toLowerCase() !== 'k' || !(event.metaKey || event.ctrlKey) || event.altKey || event.shiftKey) return
    event.preventDefault()
    if (palette.open) return palette.close()
    input.value = ''
    palette.showModal()
    show()
    input.focus()
  })
  input.addEventListener('input', show)
  palette.addEventListener('click', event => { if (event.target === palette) palette.close() })
  input.addEventListener('keydown', event => {
    const all = [...list.children], at = all.findIndex(item => item.getAttribute('aria-selected') === 'true')
    const to = { ArrowDown: Math.min(at + 1, all.length - 1), ArrowUp: Math.max(at - 1, 0) }[event.key]
    if (to !== undefined) {
      event.preventDefault()
      choose(to)
    } else if (event.key === 'Enter') {
      event.preventDefault()
      all[at]?.click()
    }
  })
}
