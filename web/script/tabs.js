// The tabs of a house's settings, which are wider than a phone.

import { $, told } from './dom.js'

// show scrolls the selected tab into view. It does so once for each, so that a patch of the page does not undo how the reader has
// scrolled the tabs. (scroll-initial-target of CSS, which some browsers have, says nothing about later changes.)
let shown = null
function show() {
  const tab = $('.tabs [aria-current]')
  if (tab && tab !== shown) {
    const tabs = tab.parentElement, row = tabs.getBoundingClientRect(), at = tab.getBoundingClientRect()
    tabs.scrollLeft += at.left + at.width / 2 - row.left - row.width / 2
  }
  shown = tab
}
show()
told('patched', show)
