// Requests for approval above the composer: those whose cards are in view are hidden.

import { $, $$, told } from './dom.js'

const scroller = $('#scroller')

function look() {
  const view = scroller.getBoundingClientRect()
  for (const ask of $$('#asks .ask')) {
    const card = document.getElementById(ask.dataset.card)?.getBoundingClientRect()
    // One that is being answered stays.
    ask.hidden = Boolean(card && card.bottom <= view.bottom && card.top >= view.top) && !ask.contains(document.activeElement)
  }
}

if ($('#asks')) {
  look()
  told('patched', look)
  told('logged', look)
  scroller.addEventListener('scroll', look, { passive: true })
  addEventListener('resize', look)
}
