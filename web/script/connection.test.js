import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'

import { Connection } from './connection.js'

// server is a fake /live. Each request waits for what the test sends.
function server() {
  const requests = []
  globalThis.fetch = async (address, { signal }) => {
    let send
    const stream = new ReadableStream({ start(controller) { send = text => controller.enqueue(new TextEncoder().encode(text)) } })
    signal.addEventListener('abort', () => { request.ended = true })
    const request = { topics: new URLSearchParams(address.split('?')[1]).getAll('t'), send, ended: false }
    requests.push(request)
    return { ok: true, body: stream }
  }
  return requests
}

async function until(what, true_) {
  for (let tries = 0; !true_(); tries++) {
    assert.ok(tries < 500, 'waited in vain for ' + what)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

const tabs = []
let connection
function tab() {
  const events = []
  const one = event => events.push(event)
  one.events = events
  tabs.push(one)
  return one
}
afterEach(() => { for (const one of tabs.splice(0)) connection.leave(one) })

test('tabs share one connection, which asks for the oldest position', async () => {
  const requests = server()
  connection = new Connection()
  const one = tab(), two = tab()
  connection.show(one, { 'thread/a': '7' })
  connection.show(two, { 'thread/a': '3', 'house/h': '' })
  await until('the connection', () => requests.length === 1)
  assert.deepEqual(requests[0].topics.sort(), ['house/h/', 'thread/a/3'])
  requests[0].send('data: {"t":"thread/a","c":"8"}\n\n')
  await until('the event in both tabs', () => one.events.length === 1 && two.events.length === 1)
})

test('events arrive whole, however the bytes are cut', async () => {
  const requests = server()
  connection = new Connection()
  const one = tab()
  connection.show(one, { 'thread/a': '0' })
  await until('the connection', () => requests.length === 1)
  for (const piece of ['data: {"t":"thr', 'ead/a","p":[{"h":"é"}]}', '\n\n']) requests[0].send(piece)
  await until('the event', () => one.events.some(e => e.p?.[0].h === 'é'))
})

test('a connection that is made again goes on where it was', async () => {
  const requests = server()
  connection = new Connection()
  const one = tab()
  connection.show(one, { 'thread/a': '1' })
  await until('the connection', () => requests.length === 1)
  requests[0].send('data: {"t":"thread/a","c":"5"}\n\n')
  await until('the event', () => one.events.length === 1)
  connection.again(0)
  await until('the second connection', () => requests.length === 2)
  assert.ok(requests[0].ended)
  assert.deepEqual(requests[1].topics, ['thread/a/5'])
})

test('a connection is made again, however often that fails', async context => {
  const requests = server()
  const up = globalThis.fetch
  let failed = 0
  globalThis.fetch = (...args) => {
    if (failed === 100) return up(...args)
    failed++
    throw new TypeError('there is no network')
  }
  context.mock.timers.enable({ apis: ['setTimeout'] })
  connection = new Connection()
  connection.show(tab(), { 'thread/a': '1' })
  for (let tries = 0; tries < 1000 && !requests.length; tries++) {
    context.mock.timers.tick(60_000)
    await new Promise(resolve => setImmediate(resolve))
  }
  assert.equal(requests.length, 1)
})

test('after the last tab nothing is connected', async () => {
  const requests = server()
  connection = new Connection()
  const one = tab()
  connection.show(one, { 'thread/a': '1' })
  await until('the connection', () => requests.length === 1)
  connection.leave(one)
  assert.ok(requests[0].ended)
})
