// Forms that post without leaving the page: Stop, Run again, answers to bots and the actions of the inbox. The outcome arrives
// live; an error is shown as a notice.

import { newID, post, unreachable } from './dom.js'
import { notify } from './notice.js'

document.addEventListener('submit', async event => {
  const form = event.target
  if (!form.matches('.stop, .again, .queued, .needs, .approval-answer form')) return
  event.preventDefault()
  const row = event.submitter?.closest('.need') ?? form // the other rows stay usable
  row.classList.add('posting')
  let words = ''
  try {
    const answer = await post(form.action, new FormData(form, event.submitter))
    if (!answer.ok) words = await answer.text()
    else if (form.elements.entry) form.elements.entry.value = newID() // the next click runs another command
    else if (!form.matches('.queued, .needs')) form.reset() // no key stays on the page
  } catch { words = unreachable }
  if (words) notify(words)
  if (words || form.matches('.again, .queued')) row.classList.remove('posting')
})
