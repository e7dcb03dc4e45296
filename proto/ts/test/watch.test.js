import assert from "node:assert/strict";
import { test } from "node:test";
import { Code, ConnectError, HouseService, createClient } from "../dist/index.js";
import { createRouterTransport } from "@connectrpc/connect";

/** A client of a server whose connections tell what `connections` say, each a list of events; the last one stays open. */
function client(connections) {
  let calls = 0;
  async function* watchHouse(_request, context) {
    const events = connections[calls++];
    if (events instanceof Error) throw events;
    for (const event of events) yield { event };
    if (calls === connections.length) await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
  }
  return createClient({ transport: createRouterTransport((router) => router.service(HouseService, { watchHouse })) });
}

const thread = (id) => ({ case: "thread", value: { id } });
const caughtUp = { case: "caughtUp", value: {} };
const said = ({ case: what, value }) => [what, value.id ?? ""].join(" ").trim();

test("a watch tells what was lost between two connections, and leaves out signs of life", async () => {
  const seen = [];
  const connections = [
    [thread("a"), thread("b"), caughtUp, { case: "alive", value: {} }, { case: "gone", value: { kind: "thread", id: "b" } }, thread("c")],
    [thread("c"), thread("d"), caughtUp],
  ];
  for await (const event of client(connections).watchHouse({ houseId: "home", threads: 10 })) {
    seen.push(said(event));
    if (seen.filter((s) => s === "caughtUp").length === 2) break;
  }
  assert.deepEqual(seen, ["thread a", "thread b", "caughtUp", "gone b", "thread c", "thread c", "thread d", "gone a", "caughtUp"]);
});

test("a watch throws what connecting again cannot heal", async () => {
  const lost = [];
  const watching = client([[thread("a")], new ConnectError("who are you?", Code.Unauthenticated)]).watchHouse(
    { houseId: "home" },
    { onDisconnect: (error) => lost.push(error) },
  );
  await assert.rejects(async () => {
    for await (const _ of watching);
  }, /who are you/);
  assert.equal(lost.length, 1);
});
