// Reactions: a chip adds or takes back the reader's own, and the picker chooses an emoji for an entry.

import { $, $$, me, post, told, unreachable } from './dom.js'
import { notify } from './notice.js'

const picker = $('#react-picker')

// The rows are the same for all readers, so the script marks the reader's own reactions.
function mark() {
  for (const button of $$('.reactions [data-agents]')) button.setAttribute('aria-pressed', button.dataset.agents.split(' ').includes(me))
}
told('patched', mark)
if (me) mark()

if (picker) document.addEventListener('click', event => {
  const button = event.target.closest('.react')
  if (!button) return
  $('form', picker).action = button.dataset.react
  picker.showPopover()
  const at = button.getBoundingClientRect(), box = picker.getBoundingClientRect()
  picker.style.inset = 'auto'
  picker.style.left = Math.max(8, Math.min(at.right - box.width, innerWidth - box.width - 8)) + 'px'
  picker.style.top = Math.max(8, Math.min(at.bottom + 4, innerHeight - box.height - 8)) + 'px'
  $('button', picker).focus()
})

document.addEventListener('submit', async event => {
  const form = event.target
  if (!form.matches('.reaction')) return
  event.preventDefault()
  const fields = new FormData(form)
  // Enter in the field presses the first button, which the reader does not mean.
  if (event.submitter?.name && !(form.elements.other?.value && document.activeElement === form.elements.other)) fields.set('emoji', event.submitter.value)
  else fields.delete('emoji')
  if (picker?.contains(form)) picker.hidePopover()
  try {
    const answer = await post(form.action, fields)
    if (!answer.ok) notify(await answer.text())
    else form.elements.other && form.reset()
  } catch { notify(unreachable) }
})
