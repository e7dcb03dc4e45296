import assert from 'node:assert/strict'
import { test } from 'node:test'

import { store } from './storage.js'

function storage() {
  const kept = new Map()
  return { kept, getItem: key => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: key => kept.delete(key) }
}
const use = value => Object.defineProperty(globalThis, 'localStorage', { value, configurable: true })

test('what is kept comes back, and nothing is kept of what is empty', () => {
  const local = storage()
  use(local)
  store.set('draft:a', 'hello')
  store.set('outbox', [{ id: 1 }])
  assert.equal(store.get('draft:a'), 'hello')
  assert.deepEqual(store.get('outbox'), [{ id: 1 }])
  assert.ok([...local.kept.keys()].every(key => key.startsWith('arbe:')))
  store.set('draft:a', '')
  store.set('outbox', [])
  assert.equal(local.kept.size, 0)
})

test('nobody finds what another person has kept in the same browser', () => {
  use(storage())
  const is = me => { globalThis.document = { querySelector: selector => selector === '[data-me]' ? { dataset: { me } } : null } }
  is('ada')
  store.set('outbox:t1', [{ id: 1 }])
  is('ben')
  assert.equal(store.get('outbox:t1'), null)
  store.set('outbox:t1', null)
  is('ada')
  assert.deepEqual(store.get('outbox:t1'), [{ id: 1 }])
})

test('a storage that is full, forbidden or broken is no error', () => {
  const refuse = () => { throw new Error('the quota is exceeded') }
  use({ getItem: refuse, setItem: refuse, removeItem: refuse })
  store.set('a', 'b')
  assert.equal(store.get('a'), null)
  use({ getItem: () => '{broken' })
  assert.equal(store.get('a'), null)
})
