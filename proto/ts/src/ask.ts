import type { Client as ServiceClient } from "@connectrpc/connect";

import { Draft, turnOf } from "./draft.js";
import type { Bot, BotService } from "./gen/arbe/v1/bot_pb.js";
import type { EntryService } from "./gen/arbe/v1/entry_pb.js";
import type { Entry, TurnSummary } from "./gen/arbe/v1/payload_pb.js";
import type { ThreadService } from "./gen/arbe/v1/thread_pb.js";
import { tail, type TailEvent, type TailOptions } from "./tail.js";

/** A question for {@link Client.ask}. */
export interface AskQuestion {
  /**
   * Markdown. Unless the thread is a direct message to the bot, `ask` puts a mention of the bot before the text if the text
   * does not begin with it.
   */
  text: string;
  /** The thread to ask in. Defaults to the direct message to the bot in the house. `ask` begins one if none exists. */
  threadId?: string;
  /** The house of the direct message. Required without a threadId. */
  houseId?: string;
  /** The bot's "@handle", or its id. Defaults to the bot of the direct message if the thread is one, and otherwise to @arbe. */
  bot?: string;
  /** The ids of artifacts to send with the question: of the thread, or of the house and no thread. Defaults to none. */
  attachmentIds?: string[];
  /** How hard the model thinks: "off", "low", "medium" or "high". Defaults to the bot's setting. */
  think?: string;
  /** The id of the entry that asks. Asking again with the same id asks nothing twice. Defaults to a random id. */
  id?: string;
}

export interface AskOptions extends Pick<TailOptions, "onDisconnect" | "silenceMs"> {
  /** Ends the call but not the turn. To end the turn, call `threads.stopTurn`. */
  signal?: AbortSignal;
  /** How long to wait for the bot to begin, and for a server that cannot be reached, in milliseconds. Defaults to 60,000. */
  patienceMs?: number;
}

/** The end of a question. Newer servers may have other outcomes. */
export interface AskAnswer {
  /**
   * "answered", or why there is no answer: "failed", "stopped", "limited", "silent" (the model said nothing), "skipped" (the
   * bot was not supposed to answer) or "unanswered" (the bot did not begin in time).
   */
  outcome: string;
  /** The bot's answer; empty without one. */
  text: string;
  /** The entry that ended the question; unset if the outcome is "unanswered". */
  entry?: Entry;
  /** The id of the turn; empty if no turn began. */
  turnId: string;
  /** Why there is no answer, in one word and in a sentence, and what to do now. */
  reason: string;
  message: string;
  next: string;
  /** What the turn did and used, if there was one. */
  summary?: TurnSummary;
}

/** One part of the response to a question. */
export type AskPiece =
  /** The first piece: the question is in the log. */
  | { kind: "asked"; threadId: string; bot: Bot; entry: Entry }
  /** A typed entry of the turn that answers: its start, its steps, their results, a wait, a fallback model, a limit that is near. */
  | { kind: "entry"; entry: Entry }
  /** Text that the bot is writing. All texts since the last entry or again, joined, are the text of the step or of the answer. */
  | { kind: "text"; text: string }
  /** The model was cut off and starts over: the texts since the last entry no longer count. */
  | { kind: "again" }
  /** The last piece. */
  | { kind: "answer"; answer: AskAnswer };

/** The error of `ask` when the server could not be reached for longer than patienceMs. The bot continues. */
export class LostError extends Error {
  constructor(cause: unknown) {
    super(`the connection to the server is lost: ${cause}`, { cause });
    this.name = "LostError";
  }
}

interface Services {
  bots: Pick<ServiceClient<typeof BotService>, "getBot">;
  entries: Pick<ServiceClient<typeof EntryService>, "say" | "tail">;
  threads: Pick<ServiceClient<typeof ThreadService>, "getThread" | "createThread">;
}

/** Implements `Client.ask`. */
export async function* ask(services: Services, question: AskQuestion, options: AskOptions = {}): AsyncGenerator<AskPiece, void, void> {
  const { patienceMs = 60_000, signal, onDisconnect, silenceMs } = options;
  const call = signal && { signal };
  const id = question.id ?? crypto.randomUUID();
  const { threadId, bot, direct } = await place(services, question, call);
  const text = direct ? question.text : mentioning(bot.handle, question.text);
  const said = await services.entries.say({ threadId, id, text, think: question.think ?? "", literal: true, attachmentIds: question.attachmentIds ?? [] }, call);
  const entry = said.entry!;
  yield { kind: "asked", threadId, bot, entry };

  const leaving = new AbortController();
  const impatient = Symbol();
  const timers = { begin: setTimeout(() => leaving.abort(impatient), patienceMs), gone: undefined as ReturnType<typeof setTimeout> | undefined };
  const turn = new Turn(entry.id, bot.id);
  try {
    const events = tail(services.entries, threadId, {
      after: entry.seq,
      typed: true,
      signal: signal ? AbortSignal.any([signal, leaving.signal]) : leaving.signal,
      ...(silenceMs !== undefined && { silenceMs }),
      onDisconnect: (error, waitMs) => {
        clearTimeout(timers.begin); // while the server is gone, the bot's silence says nothing
        timers.gone ??= setTimeout(() => leaving.abort(new LostError(error)), patienceMs);
        onDisconnect?.(error, waitMs);
      },
    });
    for await (const event of events) {
      if (timers.gone !== undefined) {
        clearTimeout(timers.gone);
        timers.gone = undefined;
        timers.begin = setTimeout(() => leaving.abort(impatient), patienceMs);
      }
      for (const piece of turn.take(event)) {
        yield piece;
        if (piece.kind === "answer") return;
      }
      if (turn.id !== "") clearTimeout(timers.begin);
    }
  } catch (error) {
    signal?.throwIfAborted();
    if (leaving.signal.aborted && leaving.signal.reason === impatient) {
      yield answer({ outcome: "unanswered", message: "the bot has not begun to answer", next: "see what it answers to with: arbe thread why" });
      return;
    }
    throw leaving.signal.aborted ? leaving.signal.reason : error;
  } finally {
    clearTimeout(timers.begin);
    clearTimeout(timers.gone);
  }
}

/** Finds the bot, and the thread to ask in. */
async function place(services: Services, { threadId = "", houseId = "", bot: ref = "" }: AskQuestion, call?: { signal: AbortSignal }) {
  let parent = "";
  if (threadId !== "") {
    const { thread } = await services.threads.getThread({ id: threadId }, call);
    houseId = thread!.houseId;
    parent = thread!.parentAgentId;
  }
  const which =
    ref.startsWith("@") ? { case: "handle" as const, value: ref.slice(1) }
    : ref !== "" || parent !== "" ? { case: "id" as const, value: ref || parent }
    : { case: "handle" as const, value: "arbe" };
  const bot = (await services.bots.getBot({ houseId, which }, call)).bot!;
  if (threadId === "") {
    const { thread } = await services.threads.createThread({ houseId, parentAgentId: bot.id, reuse: true }, call);
    threadId = thread!.id;
    parent = bot.id;
  }
  return { threadId, bot, direct: parent === bot.id };
}

function mentioning(handle: string, text: string): string {
  const mention = `@${handle}`;
  if (text.slice(0, mention.length).toLowerCase() === mention.toLowerCase() && /^:?(\s|$)/.test(text.slice(mention.length))) {
    return text;
  }
  // An empty line separates them, because a text of several lines may begin with a block, such as a list.
  return mention + (text.trimEnd().includes("\n") ? "\n\n" : " ") + text;
}

function answer(given: Partial<AskAnswer> & { outcome: string }): AskPiece {
  return { kind: "answer", answer: { text: "", turnId: "", reason: "", message: "", next: "", ...given } };
}

/** Returns the id of the turn to which a payload of any kind belongs; empty if it belongs to no turn. */
function turnOfPayload(payload: object | undefined): string {
  const { turnId, turn } = (payload ?? {}) as { turnId?: unknown; turn?: unknown };
  return [turnId, turn].find((id) => typeof id === "string") ?? "";
}

/** Follows the turn that answers an entry. */
class Turn {
  /** The turn's id; empty before it begins. */
  id = "";
  #draft = new Draft();

  constructor(
    readonly asks: string,
    readonly bot: string,
  ) {}

  *take(event: TailEvent): Generator<AskPiece> {
    if (event.case === "delta") {
      if (this.id === "" || turnOf(event.value) !== this.id) return;
      const { text, again } = this.#draft.add(event.value);
      if (again) yield { kind: "again" };
      if (text !== "") yield { kind: "text", text };
      return;
    }
    if (event.case !== "entry") return;
    const entry = event.value;
    const { case: kind, value } = entry.typed;
    switch (kind) {
      case "turnStarted":
      case "turnSteered":
        if (value.entryId !== this.asks || value.agentId !== this.bot) return;
        this.id = value.turnId;
        return yield { kind: "entry", entry };
      case "skipped":
        if (value.entryId !== this.asks || value.agentId !== this.bot) return;
        return yield answer({ outcome: "skipped", entry, reason: value.reason, message: `the bot did not answer: ${value.explanation}` });
    }
    if (this.id === "") return;
    switch (kind) {
      case "piAssistant":
        if (value.turn !== this.id) return;
        yield* this.#heal(value.content.filter((b) => b.type === "text" && b.text !== "").map((b) => b.text).join("\n\n"));
        this.#draft = new Draft();
        return yield { kind: "entry", entry };
      case "turnEnded": {
        if (value.turnId !== this.id) return;
        const { outcome, turnId, reason, message, next, summary } = value;
        return yield answer({ outcome, entry, turnId, reason, message, next, ...(summary && { summary }) });
      }
      case "chat":
        if (value.turn?.turnId !== this.id) return;
        // A turn that was already writing its answer has not seen a question that was passed to it. Another turn then begins.
        if (!value.turn.answers.includes(this.asks)) {
          this.#draft = new Draft();
          return yield { kind: "entry", entry };
        }
        yield* this.#heal(value.text);
        return yield answer({ outcome: "answered", text: value.text, entry, turnId: this.id, summary: value.turn });
      default:
        if (turnOfPayload(value) === this.id) yield { kind: "entry", entry };
    }
  }

  /** Yields the missing part of a text that is now complete. */
  *#heal(whole: string): Generator<AskPiece> {
    const { rest, again } = this.#draft.rest(whole);
    if (again) yield { kind: "again" };
    if (rest !== "") yield { kind: "text", text: rest };
  }
}
