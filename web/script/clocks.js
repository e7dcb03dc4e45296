// Clocks.

import { $$ } from './dom.js'
import { ago, elapsed, past } from './times.js'

function tick() {
  for (const time of $$('time[datetime]:not(.elapsed)')) {
    const date = new Date(time.dateTime), text = time.matches('.past') ? past(date) : ago(date)
    if (time.textContent !== text) time.textContent = text
    if (!time.dataset.local) {
      time.dataset.local = 'yes'
      time.title = date.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'medium' })
    }
  }
}
function tickElapsed() {
  for (const time of $$('.elapsed')) {
    time.textContent = elapsed(Date.now() - new Date(time.dateTime))
  }
}

tick()
tickElapsed()
setInterval(tick, 20_000)
setInterval(tickElapsed, 1_000)
