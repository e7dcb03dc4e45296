/**
 * The typed client of arbe: the services of the contract with their credential, and a tail that
 * survives what happens to connections and servers.
 *
 * The messages are generated into ./gen; what is written by hand is the client (client.ts), the tail
 * (tail.ts), running a command (run.ts), asking a bot (ask.ts), what entries say (payload.ts) and what errors say (errors.ts).
 *
 * The rule to remember: every write takes an id of the caller's choice, and a repeat with the same id
 * writes nothing twice. A program that retries picks the id itself.
 */
export { createClient, type Client, type ClientOptions } from "./client.js";
export { type WatchEvent, type WatchOptions, type WatchRequest } from "./watch.js";
export { LostError, type AskAnswer, type AskOptions, type AskPiece, type AskQuestion } from "./ask.js";
export { OutputError, type RunOptions, type RunRequest, type RunResult } from "./run.js";
export { GapError, type TailEvent, type TailOptions } from "./tail.js";
export {
  payloadOf,
  type ChatPayload,
  type CommandPayload,
  type CommandResultPayload,
  type EnvironmentPreparedPayload,
  type ForkedPayload,
  type HouseCreatedPayload,
  type Payloads,
  type SandboxResumedPayload,
  type StatusChangedPayload,
} from "./payload.js";
export { nextStep, reason, reference, requestId } from "./errors.js";
export { Code, ConnectError } from "@connectrpc/connect";

export * from "./messages.js";
