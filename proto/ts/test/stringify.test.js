import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { createRouterTransport } from "@connectrpc/connect";
import { EntryService, EntrySchema, ListResponseSchema, ThreadService, createClient } from "../dist/index.js";

const entry = { seq: 9007199254740993n, id: "e", type: "chat", payload: '{"text":"hi"}', ts: { seconds: 1700000000n, nanos: 0 } };

const transport = createRouterTransport(({ service }) => {
  service(EntryService, {
    list: () => ({ entries: [entry], tail: 3n }),
    async *tail() {
      yield { event: { case: "entry", value: { ...entry, seq: 1n } } };
      yield { event: { case: "caughtUp", value: { seq: 3n } } };
    },
  });
  service(ThreadService, {
    getThread: ({ id }) => ({ thread: { id, tail: 7n, forkedFrom: { threadId: "t", seq: 5n } } }),
  });
});
const arbe = createClient({ transport });
const said = { seq: "9007199254740993", id: "e", type: "chat", payload: '{"text":"hi"}', ts: "2023-11-14T22:13:20Z" };

test("JSON.stringify of a message and of what is in it is the contract's JSON", async () => {
  const list = await arbe.entries.list({ threadId: "t" });
  assert.deepEqual(JSON.parse(JSON.stringify(list)), { entries: [said], tail: "3" });
  assert.deepEqual(JSON.parse(JSON.stringify(list.entries[0])), said);
  assert.deepEqual(JSON.parse(JSON.stringify({ first: list.entries[0] })), { first: said });
  const { thread } = await arbe.threads.getThread({ id: "t1" });
  assert.deepEqual(JSON.parse(JSON.stringify(thread.forkedFrom)), { threadId: "t", seq: "5" });
});

test("so is that of an event of a tail", async () => {
  for await (const event of arbe.tail("t")) {
    assert.deepEqual(JSON.parse(JSON.stringify(event.value)), event.case === "entry" ? { ...said, seq: "1" } : { seq: "3" });
    if (event.case === "caughtUp") break;
  }
});

test("messages stay what they are for programs", async () => {
  const list = await arbe.entries.list({ threadId: "t" });
  assert.equal(list.tail, 3n);
  assert.deepEqual(Object.keys(list.entries[0]).sort(), Object.keys(create(EntrySchema, entry)).sort());
  assert.deepEqual(list, create(ListResponseSchema, { entries: [entry], tail: 3n }));
});
