// What a terminal sends for a key or for pasted text. modes are what the program asked for: cursorKeys, and paste.

const letters = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' }
const numbers = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24 }
const functions = { F1: 'P', F2: 'Q', F3: 'R', F4: 'S' }
const controls = { ' ': '\0', '@': '\0', '2': '\0', '[': '\x1b', '3': '\x1b', '\\': '\x1c', '4': '\x1c', ']': '\x1d', '5': '\x1d', '^': '\x1e', '6': '\x1e', '_': '\x1f', '/': '\x1f', '7': '\x1f', '?': '\x7f', '8': '\x7f' }

// keyText returns the text for a key, or '' if the browser keeps the key: it has no meaning in a terminal, begins a composition,
// or is pressed with Command or Ctrl+Shift.
export function keyText(event, modes = {}) {
  const { key, shiftKey: shift, altKey: alt, ctrlKey: ctrl, metaKey: meta } = event
  if (meta || event.isComposing || ['Dead', 'Process', 'Unidentified', 'AltGraph'].includes(key)) return ''
  const alternative = event.getModifierState?.('AltGraph') // Ctrl and Alt of this key only choose its character
  const modifier = 1 + (shift ? 1 : 0) + (alt ? 2 : 0) + (ctrl ? 4 : 0)
  const plain = modifier === 1
  if (letters[key]) return plain ? (modes.cursorKeys ? '\x1bO' : '\x1b[') + letters[key] : '\x1b[1;' + modifier + letters[key]
  if (functions[key]) return plain ? '\x1bO' + functions[key] : '\x1b[1;' + modifier + functions[key]
  if (numbers[key]) return key === 'Insert' && shift ? '' : '\x1b[' + numbers[key] + (plain ? '' : ';' + modifier) + '~'
  const escape = alt && !alternative ? '\x1b' : ''
  switch (key) {
    case 'Enter': return escape + '\r'
    case 'Backspace': return escape + (ctrl ? '\b' : '\x7f')
    case 'Tab': return ctrl ? '' : shift ? '\x1b[Z' : escape + '\t'
    case 'Escape': return escape + '\x1b'
  }
  if ([...key].length !== 1) return ''
  if (!ctrl || alternative) return escape + key
  if (/^[a-z]$/i.test(key)) return shift ? '' : escape + String.fromCharCode(key.toLowerCase().charCodeAt(0) & 31)
  return controls[key] === undefined ? '' : escape + controls[key]
}

// pasteText returns what to send for pasted text. It drops Escape, so that the text cannot end its paste mark and act as keys.
export function pasteText(text, modes = {}) {
  const typed = text.replace(/\r?\n/g, '\r').replaceAll('\x1b', '')
  return modes.paste ? '\x1b[200~' + typed + '\x1b[201~' : typed
}

// Typing sends typed text in order, with one request at a time. Text typed meanwhile goes into the next request. A request is
// repeated until it is answered. send(text, number, again) sends a request, and resolves to 'done', 'again' or 'stop'.
export class Typing {
  #waiting = ''
  #busy = false
  #number = 0
  constructor(send, pause = 500) {
    this.send = send
    this.pause = pause
  }

  type(text) {
    this.#waiting += text
    if (!this.#busy) this.#run()
  }

  async #run() {
    this.#busy = true
    while (this.#waiting) {
      let size = Math.min(this.#waiting.length, 32_768)
      if (/[\ud800-\udbff]/.test(this.#waiting[size - 1])) size++ // both halves of a character
      const text = this.#waiting.slice(0, size)
      this.#waiting = this.#waiting.slice(size)
      const number = ++this.#number
      for (let again = false; ; again = true) {
        let answer = 'again'
        try { answer = await this.send(text, number, again) } catch { /* the server cannot be reached */ }
        if (answer === 'done') break
        if (answer === 'stop') {
          this.#waiting = ''
          break
        }
        await new Promise(resolve => setTimeout(resolve, this.pause))
      }
    }
    this.#busy = false
  }
}
