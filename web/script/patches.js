// Patches of the page, which arrive over the connection.

import { $, tell } from './dom.js'

// put applies patches. A patch without a target is skipped: the event came twice, or another tab needs it.
export function put(patches) {
  const focused = document.activeElement?.id
  for (const { s: selector, m: mode = 'outer', h: elements = '' } of patches) {
    if (!$(selector)) continue
    const detail = { type: 'datastar-patch-elements', el: document.body, argsRaw: { selector, mode, elements } }
    document.dispatchEvent(new CustomEvent('datastar-fetch', { detail }))
    // Open a tool call whose failure arrives, as in a page that is loaded later.
    if (selector.endsWith('-call-result') && $(selector + ' .error')) $(selector).parentElement.open = true
  }
  if (focused && !document.activeElement?.id) document.getElementById(focused)?.focus({ preventScroll: true })
  tell('patched')
}
