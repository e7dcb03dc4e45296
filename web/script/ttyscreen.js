// The screen of a terminal. The server sends lines as texts with classes, which become text nodes: what a program prints never
// becomes markup.

export class Screen {
  #lines = new Map() // of the main screen and of the alternate one, by number
  constructor({ scroller, main, other, cursor }) {
    Object.assign(this, { scroller, main, other, cursor })
    this.#lines.set(main, new Map()).set(other, new Map())
  }

  // show applies a frame.
  show(frame) {
    const atEnd = this.scroller.scrollTop + this.scroller.clientHeight >= this.scroller.scrollHeight - 8
    if (frame.z) for (const [box, lines] of this.#lines) {
      box.replaceChildren()
      lines.clear()
    }
    const box = frame.o ? this.other : this.main
    const moved = box.hidden
    this.main.hidden = !!frame.o
    this.other.hidden = !frame.o
    const lines = this.#lines.get(box)
    for (const row of frame.r ?? []) this.#row(box, lines, row)
    const drop = line => {
      lines.delete(line.n)
      line.remove()
    }
    while (box.firstChild && box.firstChild.n < frame.f) drop(box.firstChild)
    while (box.lastChild && box.lastChild.n >= frame.t + frame.h) drop(box.lastChild)
    if (atEnd || moved || frame.z) this.scroller.scrollTop = this.scroller.scrollHeight
    const line = lines.get(frame.y)
    this.cursor.hidden = !!frame.v || !line
    if (line) {
      this.cursor.style.setProperty('--x', frame.x)
      this.cursor.style.setProperty('--top', line.offsetTop + 'px')
    }
  }

  #row(box, lines, [n, ...parts]) {
    let line = lines.get(n)
    if (!line) {
      line = document.createElement('div')
      line.n = n
      lines.set(n, line)
      let before = box.lastChild
      while (before && before.n > n) before = before.previousSibling
      box.insertBefore(line, before ? before.nextSibling : box.firstChild)
    }
    const made = []
    for (let i = 0; i < parts.length; i += 2) {
      if (!parts[i + 1]) {
        made.push(document.createTextNode(parts[i]))
        continue
      }
      const wide = parts[i + 1].includes('tty-wide')
      for (const text of wide ? parts[i].match(/[^\p{M}]\p{M}*/gu) ?? [] : [parts[i]]) {
        const span = document.createElement('span')
        span.className = parts[i + 1]
        span.textContent = text
        made.push(span)
      }
    }
    line.replaceChildren(...made)
  }
}
