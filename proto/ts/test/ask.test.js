import assert from "node:assert/strict";
import { test } from "node:test";
import { createRouterTransport } from "@connectrpc/connect";
import { BotService, Code, ConnectError, createClient, EntryService, LostError, ThreadService } from "../dist/index.js";

const bot = { id: "0b8d3f0e-0000-4000-8000-000000000001", handle: "arbe" };

/** A server with one bot, which sends events after each question and then what ends says: nothing, or an error. */
function server(events, { direct = false, ends } = {}) {
  const said = [];
  const transport = createRouterTransport(({ service }) => {
    service(ThreadService, {
      getThread: ({ id }) => ({ thread: { id, houseId: "house", parentAgentId: direct ? bot.id : "" } }),
      createThread: ({ parentAgentId, reuse }) => ({ thread: { id: reuse && parentAgentId === bot.id ? "direct" : "other" } }),
    });
    service(BotService, { getBot: () => ({ bot }) });
    service(EntryService, {
      say(request) {
        said.push(request);
        return { entry: { id: request.id, seq: 1n } };
      },
      async *tail({ after }, { signal }) {
        for (const event of events) {
          if (event.case !== "entry" || event.value.seq > after) yield { event };
        }
        if (ends) throw ends();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      },
    });
  });
  return { client: createClient({ transport }), said };
}

const entry = (seq, kind, value) => ({ case: "entry", value: { seq: BigInt(seq), type: kind, typed: { case: kind, value } } });
const started = entry(2, "turnStarted", { turnId: "t1", agentId: bot.id, entryId: "q" });
const step = (seq, text) => entry(seq, "piAssistant", { turn: "t1", content: [{ type: "text", text }] });
const chat = (seq, text) => entry(seq, "chat", { text, turn: { turnId: "t1", answers: ["q"] } });
const delta = (entryId, offset, data) => ({ case: "delta", value: { entryId, offset: BigInt(offset), data } });
const lines = (...texts) => new TextEncoder().encode(texts.map((text) => JSON.stringify({ kind: "text", block: 0, text }) + "\n").join(""));

/** What came of a question: the text, with <again> and the types of entries where these came, and the answer. */
async function asked(client, question = {}, options = {}) {
  let text = "";
  for await (const piece of client.ask({ threadId: "thread", id: "q", text: "?", ...question }, options)) {
    if (piece.kind === "answer") return { text, answer: piece.answer };
    if (piece.kind === "text") text += piece.text;
    else if (piece.kind !== "asked") text += `<${piece.kind === "entry" ? piece.entry.type : piece.kind}>`;
  }
  assert.fail("it ended without an answer");
}

test("the text of an answer is yielded once", async () => {
  const first = lines(" \nLet me ", "löok. ");
  const two = delta("turn.t1.2~1.1", 0, lines("It ", "is"));
  const cases = {
    "<turnStarted>Let me löok.<piAssistant>It is red.": [started, delta("turn.t1.1~1.1", 0, first), step(3, " \nLet me löok. "), two, chat(4, "It is red.")],
    "<turnStarted>Let me löok.<piAssistant>Yes": [
      started, delta("turn.t1.1~1.1", 0, first.subarray(0, 50)), delta("turn.t1.1~1.1", 50, first.subarray(50)), delta("turn.t1.1~1.1", 3, first.subarray(3, 20)),
      step(3, "Let me löok."), chat(4, "Yes"),
    ],
    "<turnStarted>It is green and red.": [started, two, delta("turn.t1.2~1.1", 500, lines(" red.")), chat(3, "It is green and red.")],
    "<turnStarted>It is<again>They are.": [started, two, delta("turn.t1.2~2.1", 0, lines("They are")), chat(3, "They are.")],
    "<turnStarted>It is<again>Something else.": [started, two, chat(3, "Something else.")],
    "<turnStarted>Yes.": [delta("turn.t2.1~1.1", 0, lines("not ours")), started, delta("c.result", 0, lines("output")), chat(3, "Yes.")],
  };
  for (const [want, events] of Object.entries(cases)) {
    const { text, answer } = await asked(server(events).client);
    assert.equal(text, want);
    assert.equal(answer.outcome, "answered");
    assert.equal(answer.turnId, "t1");
  }
});

test("the answer says why there is none", async () => {
  const ended = entry(3, "turnEnded", { turnId: "t1", outcome: "failed", reason: "bad_key", message: "the key is wrong", next: "set another", summary: { steps: 1 } });
  const failed = await asked(server([started, ended]).client);
  assert.equal(failed.answer.outcome, "failed");
  assert.equal(failed.answer.reason, "bad_key");
  assert.equal(failed.answer.summary.steps, 1);
  const skipped = await asked(server([entry(2, "skipped", { agentId: bot.id, entryId: "q", reason: "cooldown" })]).client);
  assert.equal(skipped.answer.outcome, "skipped");
  const silent = await asked(server([]).client, {}, { patienceMs: 50 });
  assert.equal(silent.answer.outcome, "unanswered");
});

test("it ends when the server is gone for too long, or the signal is aborted", async () => {
  const gone = server([started], { ends: () => new ConnectError("stopping", Code.Unavailable) });
  await assert.rejects(asked(gone.client, {}, { patienceMs: 50 }), LostError);
  const leaving = new AbortController();
  const left = asked(server([started]).client, {}, { signal: leaving.signal });
  leaving.abort(new Error("enough"));
  await assert.rejects(left, /enough/);
});

test("the bot is mentioned where that is needed", async () => {
  const say = async (text, question = {}, direct = false) => {
    const { client, said } = server([started, chat(3, "yes")], { direct });
    await asked(client, { text, ...question });
    assert.equal(said[0].literal, true);
    return said[0].text;
  };
  assert.equal(await say("what now?"), "@arbe what now?");
  assert.equal(await say("- one\n- two"), "@arbe\n\n- one\n- two");
  assert.equal(await say("@Arbe: what now?"), "@Arbe: what now?");
  assert.equal(await say("@arbeiter too"), "@arbe @arbeiter too");
  assert.equal(await say("/run it", {}, true), "/run it");
  assert.equal(await say("what now?", { threadId: "", houseId: "house" }), "what now?");
});
