// The head of a thread: the button of its details, and its title, which is edited in place.

import { $, $$, post, unreachable } from './dom.js'
import { notify } from './notice.js'

// On a wide screen the details button hides and shows their column. Elsewhere it opens them as a drawer.
const wide = matchMedia('(min-width: 1280px)')
$('.context-button')?.addEventListener('click', event => {
  if (!wide.matches) return
  event.preventDefault()
  const { cookie } = event.currentTarget.dataset
  const folded = $('#context').classList.toggle('folded')
  document.cookie = `${cookie}=${folded ? 'folded' : 'open'}; path=/; max-age=31536000; samesite=lax`
})

// A form must send the version that its reader saw when they opened it. So when opened, it takes the etag of the live head.
const now = () => $('#thread-head').dataset
for (const fold of $$('#context details.edit')) fold.addEventListener('toggle', () => {
  const form = fold.open && $('form:has([name=etag])', fold)
  if (!form) return
  const field = form.elements.name ?? form.elements.tags
  if (field.value !== field.defaultValue) return // keep what was typed before the form was closed
  form.elements.etag.value = now().etag
  field.value = field.defaultValue = now()[field.name]
})

// A click on the pen or a double click on the title edits the title in place.
const renaming = $('#rename')
function rename() {
  renaming.hidden = false
  renaming.elements.etag.value = now().etag
  renaming.elements.name.value = now().name
  renaming.elements.name.select()
}
function endRenaming() {
  renaming.hidden = true
  $('.rename')?.focus()
}
document.addEventListener('dblclick', event => { if (event.target.closest('#thread-head h1')) rename() })
document.addEventListener('click', event => { if (event.target.closest('.rename')) rename() })
renaming?.addEventListener('keydown', event => {
  if (event.key === 'Escape') endRenaming()
})
renaming?.addEventListener('submit', async event => {
  event.preventDefault()
  try {
    const answer = await post(renaming.action, new FormData(renaming))
    if (!answer.ok) {
      renaming.elements.etag.value = now().etag
      return notify(await answer.text())
    }
    endRenaming()
  } catch { notify(unreachable) }
})
