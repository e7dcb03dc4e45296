import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ago, dayWord, elapsed, past, worked } from './times.js'

const now = new Date(2026, 4, 10, 12)
const before = seconds => new Date(now - seconds * 1000)

test('how long ago something happened is said in one word', () => {
  for (const [seconds, word] of [[0, 'now'], [59, 'now'], [60, '1m'], [3599, '59m'], [3600, '1h'], [86399, '23h'], [86400, '1d'], [604799, '6d']]) {
    assert.equal(ago(before(seconds), now), word)
  }
  assert.doesNotMatch(ago(before(604800), now), /2026/)
  assert.match(ago(new Date(2024, 1, 3), now), /2024/)
})

test('after a word it says "ago", but a date does not', () => {
  for (const [seconds, words] of [[0, 'just now'], [59, 'just now'], [60, '1m ago'], [3600, '1h ago'], [86400, '1d ago'], [604799, '6d ago']]) {
    assert.equal(past(before(seconds), now), words)
  }
  assert.doesNotMatch(past(before(604800), now), /ago/)
})

test('what runs has a clock, which never runs backwards', () => {
  for (const [seconds, words] of [[-5, '0s'], [59, '59s'], [61, '1m 1s'], [3600, '1h 0m'], [90_000, '25h 0m']]) {
    assert.equal(elapsed(seconds * 1000), words)
  }
})

test('days are named by the calendar, not by hours', () => {
  assert.equal(dayWord(new Date(2026, 4, 10, 0, 1), now), 'Today')
  assert.equal(dayWord(new Date(2026, 4, 9, 23, 59), now), 'Yesterday')
  assert.match(dayWord(new Date(2026, 4, 8, 23), now), /2026/)
})

test('what tools did is said in a few words', () => {
  assert.equal(worked(['', 'bash', 'run_command'], 2100), '3 commands · 2s')
  assert.equal(worked(['bash', 'edit'], 900), '2 tools')
})
