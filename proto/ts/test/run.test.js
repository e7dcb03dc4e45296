import assert from "node:assert/strict";
import { test } from "node:test";
import { createRouterTransport } from "@connectrpc/connect";
import { Code, ConnectError, createClient, EntryService, OutputError, OutputStream, ThreadService } from "../dist/index.js";

/** A server that runs one command, which prints what it is given; script may change how it answers. */
function server(script = {}) {
  const calls = { cancelled: [], left: 0 };
  const printed = [];
  let input = 0n;
  let inputEnded = false;
  let requested;
  let done;
  const ended = new Promise((resolve) => (done = resolve));
  const transport = createRouterTransport(({ service }) => {
    service(ThreadService, {
      runCommand(request) {
        requested = request;
        if (!request.separate) done();
        return { entry: { id: request.id, seq: 7n }, resultId: `${request.id}.result` };
      },
      readOutput(request) {
        if (request.leave) {
          calls.left++;
          return {};
        }
        script.onRead?.(request);
        let position = 0n;
        const pieces = [];
        for (const [stream, text] of script.pieces ?? printed) {
          const known = Number(request.position - position);
          if (known < text.length) pieces.push({ stream, data: new TextEncoder().encode(text.slice(Math.max(known, 0))) });
          position += BigInt(text.length);
        }
        if (pieces.length > 0) return { position, pieces };
        if (requested.input && !inputEnded) return { position: request.position };
        done();
        return { position: request.position, ended: true };
      },
      writeInput(request) {
        const text = new TextDecoder().decode(request.data).slice(Number(input - request.position));
        const taken = text.slice(0, 3); // in small steps
        if (taken) printed.push([OutputStream.STDOUT, taken]);
        input += BigInt(taken.length);
        inputEnded ||= request.end && taken.length === text.length;
        return { position: input };
      },
      cancelCommand(request) {
        calls.cancelled.push(request.commandId);
        done();
        return {};
      },
    });
    service(EntryService, {
      async *tail() {
        await ended;
        const payload = JSON.stringify({ command_id: requested.id, exit_code: 3, output: "text", output_bytes: 4, duration_ms: 1 });
        yield { event: { case: "entry", value: { id: `${requested.id}.result`, seq: 8n, type: "command_result", payload } } };
      },
    });
  });
  return { calls, client: createClient({ transport }), request: () => requested };
}

test("a command is run, and how it ended is returned", async () => {
  const { client, request } = server();
  const result = await client.run({ threadId: "t", command: ["ls", "-l"], timeoutMs: 1500 });
  assert.equal(result.exitCode, 3);
  assert.equal(result.output, "text");
  assert.equal(result.entry.seq, 8n);
  assert.deepEqual(request().what.value.args, ["ls", "-l"]);
  assert.equal(request().timeout.seconds, 1n);
  assert.equal(request().timeout.nanos, 500_000_000);
  assert.equal(request().separate, false);
});

test("every byte of both outputs is passed on, apart, also when a call fails", async () => {
  let failures = 2;
  const { client } = server({
    pieces: [[OutputStream.STDOUT, "one "], [OutputStream.STDERR, "error"], [OutputStream.STDOUT, "two"]],
    onRead() {
      if (failures-- > 0) throw new ConnectError("away", Code.Unavailable);
    },
  });
  let stdout = "";
  let stderr = "";
  const result = await client.run(
    { threadId: "t", command: "make" },
    { onStdout: (data) => void (stdout += new TextDecoder().decode(data)), onStderr: (data) => void (stderr += new TextDecoder().decode(data)) },
  );
  assert.equal(stdout, "one two");
  assert.equal(stderr, "error");
  assert.equal(result.exitCode, 3);
});

test("a command reads all of its input", async () => {
  const { client } = server();
  let stdout = "";
  await client.run(
    { threadId: "t", command: "cat" },
    {
      stdin: ["hello ", "world"].map((text) => new TextEncoder().encode(text)),
      onStdout: (data) => void (stdout += new TextDecoder().decode(data)),
    },
  );
  assert.equal(stdout, "hello world");
});

test("what the caller's functions throw cancels the command", async () => {
  const { client, calls } = server({ pieces: [[OutputStream.STDOUT, "text"]] });
  const failing = client.run(
    { threadId: "t", id: "c", command: "yes" },
    {
      onStdout() {
        throw new Error("enough");
      },
    },
  );
  await assert.rejects(failing, /enough/);
  assert.deepEqual(calls.cancelled, ["c"]);
  assert.equal(calls.left, 1);
});
