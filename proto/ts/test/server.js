import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient } from "../dist/index.js";

const binary = process.env.ARBE_BIN ?? fileURLToPath(new URL("../../../bin/arbe", import.meta.url));
/** Why there is no server to test with; false if there is one. */
export const missing = !process.env.ARBE_BIN && !existsSync(binary) && "there is no bin/arbe: run make build first";

/** `arbe up` on a data directory of its own, which kill -9 ends and a second start finds again. */
export class Server {
  #process;

  constructor(dataDir, port, settings = {}) {
    this.dataDir = dataDir;
    this.baseUrl = `http://127.0.0.1:${port}`;
    this.env = { ...process.env, ARBE_DATA_DIR: dataDir, ARBE_ADDR: `127.0.0.1:${port}`, ...settings };
  }

  /** Starts it and returns once it answers. */
  async start() {
    const child = (this.#process = spawn(binary, ["up"], { env: this.env, stdio: ["ignore", "pipe", "pipe"] }));
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    child.stderr.on("data", (text) => (said += text));
    for (const until = Date.now() + 240_000; ; ) {
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
export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
