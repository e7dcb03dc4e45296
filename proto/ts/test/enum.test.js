import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { createConnectTransport } from "@connectrpc/connect-node";
import { createClient, ThreadStatus } from "../dist/index.js";

test("a status is an enum, and one of a newer server breaks nothing", async (t) => {
  let status;
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({ thread: { id: "t", status } }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  const arbe = createClient({ transport: createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false }) });
  for (const [sent, want] of [
    ["THREAD_STATUS_RUNNING", ThreadStatus.RUNNING],
    ["THREAD_STATUS_DREAMING", ThreadStatus.UNSPECIFIED],
    [99, 99],
  ]) {
    status = sent;
    const { thread } = await arbe.threads.getThread({ id: "t" });
    assert.deepEqual([thread.id, thread.status], ["t", want]);
  }
});
