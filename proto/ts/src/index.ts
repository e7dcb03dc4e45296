/**
 * The typed client of arbe: the services of the contract with a credential, and a tail that continues
 * when connections break and servers restart.
 *
 * The messages are generated into ./gen. The other files are written by hand: client.ts has the client,
 * tail.ts follows a log, run.ts runs a command, ask.ts asks a bot, payload.ts reads entries, and errors.ts
 * reads errors.
 *
 * The rule to remember: every write takes an id of the caller's choice, and repeating it with the same id
 * changes nothing. A program that retries must choose the id itself; otherwise a retry would write twice.
 */
export { createClient, type Client, type ClientOptions } from "./client.js";
export { type WatchEvent, type WatchOptions, type WatchRequest } from "./watch.js";
export { LostError, type AskAnswer, type AskOptions, type AskPiece, type AskQuestion } from "./ask.js";
export { OutputError, type RunOptions, type RunRequest, type RunResult } from "./run.js";
export { GapError, type TailEvent, type TailOptions } from "./tail.js";
export { payloadOf, rawPayloadOf, type Payloads } from "./payload.js";
export { nextStep, reason, reference, requestId } from "./errors.js";
export { Code, ConnectError } from "@connectrpc/connect";

export * from "./messages.js";
