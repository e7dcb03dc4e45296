// The line above the first entry of each day, in the reader's time zone.

import { $, $$ } from './dom.js'
import { dayWord } from './times.js'

export function markDays(log) {
  let last = ''
  for (const entry of $$('[data-entry]', log)) {
    const date = new Date($('time', entry).dateTime), day = date.toDateString()
    let mark = entry.previousElementSibling
    if (!mark?.matches('.day')) mark = null
    if (day === last) mark?.remove()
    else {
      if (!mark) {
        mark = document.createElement('p')
        mark.className = 'day'
        entry.before(mark)
      }
      const word = dayWord(date)
      if (mark.textContent !== word) mark.textContent = word
    }
    last = day
  }
}
