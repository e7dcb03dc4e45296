import { $ } from './dom.js'

// notify shows words at the edge of the page for a while.
export function notify(words) {
  const notice = $('#notice')
  notice.textContent = words
  clearTimeout(notice.timer)
  notice.timer = setTimeout(() => { notice.textContent = '' }, 8_000)
}
