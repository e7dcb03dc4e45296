import assert from 'node:assert/strict'
import { test } from 'node:test'

import { keyText, pasteText, Typing } from './ttykeys.js'

const key = (key, more) => keyText({ key, ...more })

test('keys become what xterm sends', () => {
  assert.equal(key('a'), 'a')
  assert.equal(key('é'), 'é')
  assert.equal(key('😀'), '😀')
  assert.equal(key('c', { ctrlKey: true }), '\x03')
  assert.equal(key('D', { ctrlKey: true }), '\x04')
  assert.equal(key(' ', { ctrlKey: true }), '\0')
  assert.equal(key('\\', { ctrlKey: true }), '\x1c')
  assert.equal(key('b', { altKey: true }), '\x1bb')
  assert.equal(key('Enter'), '\r')
  assert.equal(key('Backspace'), '\x7f')
  assert.equal(key('Tab'), '\t')
  assert.equal(key('Tab', { shiftKey: true }), '\x1b[Z')
  assert.equal(key('Escape'), '\x1b')
  assert.equal(key('Delete'), '\x1b[3~')
  assert.equal(key('F1'), '\x1bOP')
  assert.equal(key('F12', { shiftKey: true }), '\x1b[24;2~')
})

test('arrows follow the mode of the program and the modifiers', () => {
  assert.equal(key('ArrowUp'), '\x1b[A')
  assert.equal(keyText({ key: 'ArrowUp' }, { cursorKeys: true }), '\x1bOA')
  assert.equal(keyText({ key: 'ArrowLeft', ctrlKey: true }, { cursorKeys: true }), '\x1b[1;5D')
})

test('the browser keeps its own keys', () => {
  for (const [name, more] of [['c', { metaKey: true }], ['t', { ctrlKey: true, shiftKey: true }], ['Shift', {}], ['Dead', {}], ['a', { isComposing: true }], ['MediaPlay', {}], ['Tab', { ctrlKey: true }]]) assert.equal(key(name, more), '', name)
})

test('AltGr chooses a character and is neither Ctrl nor Alt', () => {
  assert.equal(key('@', { ctrlKey: true, altKey: true, getModifierState: name => name === 'AltGraph' }), '@')
})

test('pasted text cannot leave its marks', () => {
  assert.equal(pasteText('a\r\nb\nc'), 'a\rb\rc')
  assert.equal(pasteText('x\x1b[201~rm -rf\n', { paste: true }), '\x1b[200~x[201~rm -rf\r\x1b[201~')
})

test('keys arrive in order, once, with one request at a time', async () => {
  const sent = []
  let busy = 0, failures = 2
  const done = new Promise(resolve => {
    const typing = new Typing(async (text, number, again) => {
      assert.equal(++busy, 1)
      await new Promise(resolve => setTimeout(resolve, 2))
      busy--
      sent.push([text, number, again])
      if (number === 2 && failures-- > 0) {
        if (failures) throw new Error('offline')
        return 'again'
      }
      if (number === 2) resolve()
      return 'done'
    }, 1)
    typing.type('a')
    typing.type('b')
    typing.type('c')
  })
  await done
  assert.deepEqual(sent, [['a', 1, false], ['bc', 2, false], ['bc', 2, true], ['bc', 2, true]])
})

test('a long paste is cut between characters', async () => {
  let all = ''
  await new Promise(resolve => {
    const text = 'x' + '😀'.repeat(40_000)
    new Typing(async part => {
      assert.ok(part.length <= 32_769)
      assert.doesNotMatch(part, /[\ud800-\udbff]$/)
      all += part
      if (all.length === text.length) resolve()
      return 'done'
    }).type(text)
  })
  assert.equal(all, 'x' + '😀'.repeat(40_000))
})

test('what cannot be typed is forgotten', async () => {
  let sent = 0
  const typing = new Typing(async () => { sent++; return 'stop' })
  typing.type('a')
  typing.type('b')
  await new Promise(resolve => setTimeout(resolve, 5))
  assert.equal(sent, 1)
})
