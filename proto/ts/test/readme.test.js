import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { freePort, missing, Server } from "./server.js";

const run = promisify(execFile);
const root = new URL("..", import.meta.url).pathname;

/** A model of Anthropic's protocol that always says the same. */
async function modelServer(t) {
  const events = [
    { type: "message_start", message: { id: "m", type: "message", role: "assistant", content: [], model: "plain", usage: { input_tokens: 1, output_tokens: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "A test fails." } },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 4 } },
    { type: "message_stop" },
  ];
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("Content-Type", "text/event-stream");
    response.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

/** A directory of another package that depends on this one. */
async function otherPackage(t) {
  const dir = await mkdtemp(join(tmpdir(), "arbe-readme-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await mkdir(join(dir, "node_modules", "@arbe"), { recursive: true });
  await symlink(root, join(dir, "node_modules", "@arbe", "client"));
  return dir;
}

test("the examples of the README do what it says", { skip: missing, timeout: 600_000 }, async (t) => {
  const page = await readFile(join(root, "README.md"), "utf8");
  const dir = await otherPackage(t);
  const server = new Server(join(dir, "data"), await freePort(), {
    ANTHROPIC_API_KEY: "sk-test",
    ANTHROPIC_BASE_URL: await modelServer(t),
    ARBE_MODEL: "anthropic/plain",
    ARBE_SANDBOX_MAX_DISK_MB: "512",
  });
  t.after(() => server.end("SIGTERM"));
  const ARBE_TOKEN = await server.start();
  const sandboxes = await run("runc", ["--version"]).then(() => true, () => false);
  const examples = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code).filter((code) => sandboxes || !code.includes("arbe.run("));
  await writeFile(join(dir, "examples.mjs"), examples.join("\n"));
  const { stdout } = await run(process.execPath, ["examples.mjs"], { cwd: dir, env: { ...process.env, ARBE_HOST: server.baseUrl, ARBE_TOKEN } });
  const [said, ...rest] = stdout.split("\n");
  assert.match(said, /^\d+n the build is red$/);
  if (sandboxes) assert.deepEqual(rest.splice(0, 2), ["SOME INPUT", "exit code 3"]);
  assert.equal(rest.shift(), "answered A test fails.");
  assert.ok(rest.some((line) => line.endsWith(" the build")), stdout);
  assert.match(rest.at(-2), /^NOT_FOUND .+/);
});
