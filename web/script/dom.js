// What every topic needs from the page.

// With this attribute, the styles show what needs the script.
document.documentElement.dataset.scripted = ''

export const $ = (selector, root = document) => root.querySelector(selector)
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)]
export const thread = $('main.thread')?.dataset.thread
export const me = $('[data-me]')?.dataset.me
export const touch = matchMedia('(pointer: coarse)').matches

// crypto.randomUUID is missing on plain http, which a house's own network often uses.
export const newID = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('')

// nextSeq is the position of the entry that the page waits for.
export const nextSeq = () => Number($('.next')?.id.slice(5) ?? 0)

// post sends a form on behalf of the script. The server answers with words or a piece of a page, not with a whole page.
export const post = (address, fields, signal) =>
  fetch(address, { method: 'POST', headers: { 'Datastar-Request': 'true' }, body: fields && new URLSearchParams(fields), signal })

// tell and told let one topic notify another without depending on it: "connected", "patched", "logged", "sent", "replying".
export const tell = what => document.dispatchEvent(new Event('arbe:' + what))
export const told = (what, then) => document.addEventListener('arbe:' + what, then)

export const unreachable = 'The server cannot be reached. Try again in a moment.'
