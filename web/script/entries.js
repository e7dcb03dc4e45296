// An entry's actions.

import { $, $$, newID, touch, unreachable } from './dom.js'
import { notify } from './notice.js'
import { store } from './storage.js'

const said = (button, word) => {
  const title = button.title
  button.title = word
  setTimeout(() => { button.title = title }, 1500)
}

document.addEventListener('click', event => {
  const link = event.target.closest('.copy-link')
  if (link && navigator.clipboard && !event.metaKey && !event.ctrlKey) {
    event.preventDefault()
    navigator.clipboard.writeText(link.href).then(() => { said(link, 'Copied'); notify('Link copied.') }, () => notify('The browser does not let this page copy. The address of the page now leads here.'))
    history.replaceState(null, '', link.hash)
  }
  const quote = event.target.closest('.quote')
  if (quote) {
    const body = $('.body', quote.closest('.entry')), area = $('#composer-text')
    const text = ($('.prompt', body) ? '$ ' + $('.prompt', body).innerText : body.innerText).trim()
    area.value = text.split('\n').map(l => '> ' + l).join('\n') + '\n\n' + area.value
    area.dispatchEvent(new Event('input'))
    area.focus()
  }
  const output = event.target.closest('.copy-output')
  if (output) copyOutput(output)
  const wrap = event.target.closest('.wrap-output')
  if (wrap) wrap.setAttribute('aria-pressed', wrap.closest('.command').classList.toggle('wrapped'))
  if (touch && !event.target.closest('a, button, input, summary')) {
    const entry = event.target.closest('.entry')
    for (const other of $$('.entry.chosen')) if (other !== entry) other.classList.remove('chosen')
    entry?.classList.toggle('chosen')
  }
  for (const menu of $$('details.menu[open]')) if (!menu.contains(event.target)) menu.open = false
})
// copyOutput copies a command's output. If the page shows only the end, it loads the whole output from the server.
async function copyOutput(button) {
  const command = button.closest('.command')
  try {
    let text = $$('.output .screen', command).map(screen => screen.innerText).join('\n')
    if ($('.output .show-all', command)) {
      const answer = await fetch($('.tools a[download]', command).href, { headers: { 'Datastar-Request': 'true' } })
      if (!answer.ok) throw new Error('the server answers ' + answer.status)
      text = (await answer.text()).replace(/\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))/g, '')
    }
    await navigator.clipboard.writeText(text)
    said(button, 'Copied')
    notify('Copied.')
  } catch { notify('The browser does not let this page copy. Download the output instead.') }
}

// To resend a message, fork the thread before it, and make its text the draft of the fork.
document.addEventListener('submit', async event => {
  const form = event.target
  if (!form.matches('.resend')) return
  event.preventDefault()
  form.elements.thread.value = newID()
  try {
    const answer = await fetch(form.dataset.from)
    const text = await answer.text()
    if (!answer.ok) return notify(text)
    store.set('draft:thread:' + form.elements.thread.value, text)
  } catch { return notify(unreachable) }
  form.submit()
})

// A reader who comes back to this page may want another fork, which needs new ids. A page restored from memory can be clicked
// before its pageshow event, so change the ids when it is left. A page that is loaded again has its old form values, so change
// them then too.
const renewForks = () => { for (const id of $$('.fork [name=thread]')) id.value = newID() }
addEventListener('pagehide', renewForks)
if (performance.getEntriesByType('navigation')[0]?.type === 'back_forward') renewForks()
