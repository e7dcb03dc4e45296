// The protocol's official client reads, follows and appends to a thread's stream, with an API key.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { expect, test } from "vitest"

const options = {
  url: process.env.CLIENT_THREAD_URL,
  contentType: "application/json",
  headers: { Authorization: `Bearer ${process.env.CLIENT_KEY}` },
}
const chat = (id, text) => ({ id, ts: new Date().toISOString(), payload: { type: "chat", text } })

/** The ids of what a thread's stream holds. */
async function ids() {
  const response = await stream({ ...options, offset: "-1", live: false })
  return (await response.json()).map((entry) => entry.id)
}

test("an entry is appended and read", async () => {
  const thread = new DurableStream(options)
  await thread.append(JSON.stringify(chat("one", "hello")))
  const response = await thread.stream({ live: false })
  const [entry] = await response.json()
  expect(entry).toMatchObject({ seq: 1, id: "one", type: "chat", payload: { type: "chat", text: "hello" } })
  expect((await thread.head()).contentType).toBe("application/json")
})

test("a producer's entries come once each, in order", async () => {
  const errors = []
  const producer = new IdempotentProducer(new DurableStream(options), "writer", {
    autoClaim: true,
    maxBatchBytes: 200,
    onError: (error) => errors.push(error),
  })
  const wanted = Array.from({ length: 50 }, (_, i) => `p${i}`)
  for (const id of wanted) producer.append(JSON.stringify(chat(id, id)))
  await producer.flush()
  await producer.detach()
  expect(errors).toEqual([])
  expect((await ids()).filter((id) => id.startsWith("p"))).toEqual(wanted)
})

for (const live of ["sse", "long-poll"]) {
  test(`what comes is followed by ${live}`, async () => {
    const stop = new AbortController()
    const response = await stream({ ...options, offset: "now", live, signal: stop.signal })
    const seen = []
    const enough = new Promise((resolve) => {
      response.subscribeJson(async ({ items }) => {
        seen.push(...items.map((entry) => entry.id))
        if (seen.length >= 3) resolve()
      })
    })
    const thread = new DurableStream(options)
    for (const n of [1, 2, 3]) await thread.append(JSON.stringify(chat(`${live}-${n}`, "live")))
    await enough
    stop.abort()
    expect(seen).toEqual([1, 2, 3].map((n) => `${live}-${n}`))
  })
}
