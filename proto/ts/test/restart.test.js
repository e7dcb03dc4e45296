import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createClient, payloadOf } from "../dist/index.js";
import { freePort, missing, Server } from "./server.js";

/** Writes an entry, again and again until the server has answered: the id makes that harmless. */
async function post(client, threadId, text) {
  const entry = { threadId, id: randomUUID(), type: "chat", payload: JSON.stringify({ text }) };
  for (;;) {
    try {
      return await client.entries.append(entry, { timeoutMs: 5_000 });
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

test("a thread is followed over kill -9 of its server, and no entry is lost or doubled", { skip: missing, timeout: 600_000 }, async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "arbe-ts-"));
  const server = new Server(dataDir, await freePort());
  t.after(async () => {
    await server.end("SIGTERM");
    await rm(dataDir, { recursive: true, force: true });
  });
  const client = createClient({ baseUrl: server.baseUrl, token: await server.start() });
  const { houses } = await client.houses.listHouses({});
  const { thread } = await client.threads.createThread({ houseId: houses[0].id, name: "restart" });

  const all = 60;
  const written = [];
  let kill;
  const killed = new Promise((resolve) => (kill = resolve));
  const writer = (async () => {
    for (let n = 1; n <= all; n++) {
      if (n === all) await killed; // so that the tail has to connect again
      await post(client, thread.id, `line ${n}`);
      written.push(`line ${n}`);
    }
  })();

  const seen = [];
  let disconnects = 0;
  let restarted;
  for await (const event of client.tail(thread.id, { onDisconnect: () => disconnects++ })) {
    if (event.case !== "entry") continue;
    seen.push({ seq: Number(event.value.seq), text: payloadOf(event.value, "chat")?.text });
    if (seen.length === all / 3) {
      restarted = server.end("SIGKILL").then(() => (kill(), server.start()));
    }
    if (seen.length === all) break;
  }
  await Promise.all([writer, restarted]);

  assert.ok(disconnects > 0, "the tail was never disconnected: the test shows nothing");
  assert.deepEqual(seen.map((entry) => entry.seq), Array.from({ length: all }, (_, i) => i + 1));
  assert.deepEqual(seen.map((entry) => entry.text), written);
});
