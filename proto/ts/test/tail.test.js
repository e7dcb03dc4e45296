import assert from "node:assert/strict";
import { test } from "node:test";
import { Code, ConnectError, GapError, createClient, nextStep, payloadOf, rawPayloadOf } from "../dist/index.js";
import { serve, token } from "./scripted-server.js";

/** Follows the log up to an entry and returns the positions that came. */
async function positions(client, { last, ...options }) {
  const seen = [];
  for await (const event of client.tail("thread", options)) {
    if (event.case !== "entry") continue;
    seen.push(Number(event.value.seq));
    if (event.value.seq >= last) break;
  }
  return seen;
}

/** Checks that each wait is up to twice as long as the one before could be. */
function growing(waits) {
  waits.forEach((wait, i) => {
    const ceiling = 100 * 2 ** i;
    assert.ok(wait >= ceiling / 2 && wait <= ceiling, `attempt ${i + 1} waited ${wait} ms`);
  });
}

const upTo = (last, after = 0) => Array.from({ length: last - after }, (_, i) => after + i + 1);

test("a tail replays what is there and says when it has", async (t) => {
  const { baseUrl } = await serve(t, { length: 3 });
  const kinds = [];
  for await (const event of createClient({ baseUrl, token }).tail("thread", { after: 1 })) {
    kinds.push(event.case);
    if (event.case === "caughtUp") break;
  }
  assert.deepEqual(kinds, ["entry", "entry", "caughtUp"]);
});

test("a tail loses and doubles nothing over connections that are cut anywhere", async (t) => {
  let cuts = 0;
  const { baseUrl } = await serve(t, {
    length: 400,
    onSend: (_event, _call, cut) => {
      const dice = Math.random();
      if (dice < 0.01) {
        cuts++;
        cut();
      } else if (dice < 0.02) {
        cuts++;
        throw new ConnectError("the server stops", Code.Unavailable);
      }
    },
  });
  assert.deepEqual(await positions(createClient({ baseUrl, token }), { last: 400 }), upTo(400));
  assert.ok(cuts > 0, "no connection was cut: the test shows nothing");
});

test("a tail asks for typed entries on every connection, and only if the caller does", async (t) => {
  const { baseUrl, calls } = await serve(t, {
    length: 2,
    onSend: (event, call, cut) => call === 1 && event.case === "entry" && event.value.seq === 2n && cut(),
  });
  for (const typed of [true, undefined]) {
    const said = [];
    for await (const event of createClient({ baseUrl, token }).tail("thread", { typed })) {
      if (event.case === "caughtUp") break;
      if (event.case === "entry") said.push(event.value.typed.case && event.value.typed.value.text);
    }
    assert.deepEqual(said, typed ? ["hi", "hi"] : [undefined, undefined]);
  }
  assert.equal(calls(), 3, "the first connection was to be cut, so that there is a second one");
});

test("a tail goes on when the server ends the stream without an error", async (t) => {
  const { baseUrl } = await serve(t, { length: 2, onCall: (call) => (call === 1 ? "end" : undefined) });
  assert.deepEqual(await positions(createClient({ baseUrl, token }), { last: 2 }), upTo(2));
});

test("a tail asks again for what a connection left out, and drops what it repeats", async (t) => {
  const { baseUrl } = await serve(t, {
    length: 50,
    onSend: (event, call) => {
      if (event.case === "entry" && call < 5 && Math.random() < 0.3) {
        event.value = { ...event.value, seq: event.value.seq + BigInt(Math.floor(Math.random() * 3) - 1) };
      }
    },
  });
  assert.deepEqual(await positions(createClient({ baseUrl, token }), { last: 50 }), upTo(50));
});

test("a tail leaves a connection that fell silent and says why", async (t) => {
  const { baseUrl } = await serve(t, {
    length: 1,
    onCall: (call, signal) => (call === 1 ? new Promise((resolve) => signal.addEventListener("abort", () => resolve("end"))) : undefined),
  });
  const reasons = [];
  const onDisconnect = (error) => reasons.push(error.message);
  assert.deepEqual(await positions(createClient({ baseUrl, token }), { last: 1, silenceMs: 200, onDisconnect }), upTo(1));
  assert.deepEqual([...new Set(reasons)], ["the server said nothing for 200 ms"]); // a slow machine may be silent again
});

test("a tail ends with the reason of its signal, also while nobody answers", async () => {
  const leaving = new AbortController();
  const client = createClient({ baseUrl: "http://127.0.0.1:1", token });
  const waits = [];
  const onDisconnect = (_error, waitMs) => {
    waits.push(waitMs);
    if (waits.length === 3) leaving.abort(new Error("enough"));
  };
  await assert.rejects(positions(client, { last: 1, signal: leaving.signal, onDisconnect }), /enough/);
  growing(waits);
});

test("a tail waits longer also when every connection ends at the same place", async (t) => {
  const leaving = new AbortController();
  const { baseUrl } = await serve(t, {
    length: 3,
    onSend: (event) => {
      if (event.case === "caughtUp") throw new ConnectError("not now", Code.Unavailable);
    },
  });
  const waits = [];
  const onDisconnect = (_error, waitMs) => {
    waits.push(waitMs);
    if (waits.length === 4) leaving.abort(new Error("enough"));
  };
  await assert.rejects(positions(createClient({ baseUrl, token }), { last: 4, signal: leaving.signal, onDisconnect }), /enough/);
  growing(waits);
});

test("a tail waits longer at a gap that stays, and throws it", async (t) => {
  const { baseUrl, calls } = await serve(t, {
    length: 5,
    onSend: (event) => {
      if (event.case === "entry" && event.value.seq > 3n) event.value = { ...event.value, seq: event.value.seq + 2n };
    },
  });
  const waits = [];
  const onDisconnect = (_error, waitMs) => waits.push(waitMs);
  await assert.rejects(
    positions(createClient({ baseUrl, token }), { last: 7, onDisconnect }),
    (error) => error instanceof GapError && error.position === 3n && error.found === 6n,
  );
  assert.equal(waits.length, 5);
  assert.equal(calls(), 6);
  growing(waits);
});

for (const code of [Code.Unauthenticated, Code.PermissionDenied, Code.NotFound, Code.InvalidArgument, Code.OutOfRange]) {
  test(`a tail gives up on ${Code[code]}, with the server's next step`, async (t) => {
    const { baseUrl, calls } = await serve(t, {
      onCall: () => {
        throw new ConnectError("no", code, { "Arbe-Next": "do this" });
      },
    });
    await assert.rejects(positions(createClient({ baseUrl, token }), { last: 1 }), (error) => error.code === code && nextStep(error) === "do this");
    assert.equal(calls(), 1);
  });
}

test("a client without a credential is told so", async (t) => {
  const { baseUrl } = await serve(t, {});
  await assert.rejects(positions(createClient({ baseUrl }), { last: 1 }), { code: Code.Unauthenticated });
});

test("payloadOf reads an entry as what it is, and as nothing else", () => {
  const entry = { type: "chat", payload: '{"text":"hi"}' };
  assert.equal(payloadOf(entry, "chat")?.text, "hi");
  assert.equal(payloadOf(entry, "command"), undefined);
  assert.deepEqual(rawPayloadOf({ type: "something.new", payload: "[1]" }), [1]);
});

test("the fields of a payload have names in camelCase, and its JSON is that of the API", () => {
  const payload = '{"command_id":"c","exit_code":3,"output":"x","output_bytes":1,"duration_ms":20,"of_a_later_version":true}';
  const result = payloadOf({ type: "command_result", payload }, "command_result");
  assert.equal(result?.exitCode, 3);
  assert.equal(result?.durationMs, 20n);
  assert.equal(result?.artifactId, "");
  assert.deepEqual(JSON.parse(JSON.stringify(result)), { commandId: "c", exitCode: 3, output: "x", outputBytes: "1", durationMs: "20" });
  assert.equal(payloadOf({ type: "chat", payload: '{"text":1}' }, "chat"), undefined);
});
