import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { createClient, payloadOf } from "../dist/index.js";

const binary = process.env.ARBE_BIN ?? fileURLToPath(new URL("../../../bin/arbe", import.meta.url));
const missing = !process.env.ARBE_BIN && !existsSync(binary) && "there is no bin/arbe: run make build first";

/** `arbe up` on a data directory of its own, which kill -9 ends and a second start finds again. */
class Server {
  #process;

  constructor(dataDir, port) {
    this.dataDir = dataDir;
    this.baseUrl = `http://127.0.0.1:${port}`;
    this.env = { ...process.env, ARBE_DATA_DIR: dataDir, ARBE_ADDR: `127.0.0.1:${port}` };
  }

  /** Starts it and returns once it answers. */
  async start() {
    const child = (this.#process = spawn(binary, ["up"], { env: this.env, stdio: ["ignore", "pipe", "pipe"] }));
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    child.stderr.on("data", (text) => (said += text));
    for (const until = Date.now() + 120_000; ; ) {
      try {
        const { token } = JSON.parse(await readFile(join(this.dataDir, "cli.json"), "utf8"));
        await createClient({ baseUrl: this.baseUrl, token }).agents.whoAmI({});
        return token;
      } catch (error) {
        assert.ok(child.exitCode === null && Date.now() < until, `arbe up does not answer (${error}):\n${said}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  /** Ends it with a signal and returns once it is gone. */
  async end(signal) {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await gone;
  }
}

/** A port that is free now. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

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

test("a thread is followed over kill -9 of its server, and no entry is lost or doubled", { skip: missing, timeout: 300_000 }, async (t) => {
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
  const writer = (async () => {
    for (let n = 1; n <= all; n++) {
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
      restarted = server.end("SIGKILL").then(() => server.start());
    }
    if (seen.length === all) break;
  }
  await Promise.all([writer, restarted]);

  assert.ok(disconnects > 0, "the tail was never disconnected: the test shows nothing");
  assert.deepEqual(seen.map((entry) => entry.seq), Array.from({ length: all }, (_, i) => i + 1));
  assert.deepEqual(seen.map((entry) => entry.text), written);
});
