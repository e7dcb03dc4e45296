import { type Interceptor, type Transport } from "@connectrpc/connect";

import { ask, type AskOptions, type AskPiece, type AskQuestion } from "./ask.js";
import { createServices, type Services } from "./services.js";
import { stringifiable } from "./stringify.js";
import { run, type RunOptions, type RunRequest, type RunResult } from "./run.js";
import { tail, type TailEvent, type TailOptions } from "./tail.js";
import { watchHouse, type WatchEvent, type WatchOptions, type WatchRequest } from "./watch.js";
import { defaultTransport } from "#transport";

/** What {@link createClient} needs to know: a server with a credential, or a transport that knows both. */
export type ClientOptions =
  | {
      /** The server's address, such as "http://127.0.0.1:8420". */
      baseUrl: string;
      /** An API key, a session or a thread's token; sent as "Authorization: Bearer …". Without it, calls have no credential. */
      token?: string;
    }
  | {
      /** Any Connect transport, for a browser (@connectrpc/connect-web), a proxy or a test. */
      transport: Transport;
    };

/**
 * One server, called with one credential. Errors of all calls are `ConnectError`s. JSON.stringify of a message that a
 * call returns, or of one in it, is the contract's JSON: positions and sizes, which are bigints, become strings.
 */
export interface Client extends Services {
  /**
   * Replays a thread's log and then follows it: every entry exactly once, in order, however often
   * connections are cut and servers restart in between. It reconnects by itself, from the position
   * it reached. While attempts make no progress, the waits between them grow to five seconds; `onDisconnect`
   * is called before each.
   *
   * Besides entries it yields deltas, which are previews and may be missed or repeated around a
   * reconnect (their offset shows it), and caughtUp, once per connection.
   *
   * It ends when the loop is left. It throws the signal's reason when that is aborted, and a
   * `ConnectError` that reconnecting cannot fix: the credential is not accepted, the thread does not exist, or the
   * position is past the log's end, which also happens after a restore that lost the last entries. It throws a `GapError` when the log itself has a gap.
   */
  tail(threadId: string, options?: TailOptions): AsyncGenerator<TailEvent, never, void>;

  /**
   * Runs a command on a thread's sandbox and returns how it ended, however often connections are cut and servers restart
   * meanwhile. An exit code other than 0 is no error.
   *
   * It throws the signal's reason when that is aborted; then the command goes on. What the caller's functions and stdin
   * throw cancels the command. It throws an `OutputError` when the output did not arrive whole, and otherwise
   * what `threads.runCommand` and `tail` throw.
   */
  run(request: RunRequest, options?: RunOptions): Promise<RunResult>;

  /**
   * Asks a bot something and yields what comes of it, however often connections are cut and servers restart meanwhile. The
   * last piece has the answer. A bot that fails is no error: the answer's outcome says why.
   *
   * It throws the signal's reason when that is aborted; then the bot continues, as it does when the loop is left. To end
   * its turn, call `threads.stopTurn`. It throws a `LostError` when the server could not be reached for patienceMs, and
   * otherwise what the calls that ask and `tail` throw.
   */
  ask(question: AskQuestion, options?: AskOptions): AsyncGenerator<AskPiece, void, void>;

  /**
   * Yields the rows of a house that the request names, and their changes, however often connections are cut and
   * servers restart in between: first every row, then caughtUp, then a row whenever it changes and a gone when it is
   * deleted or no longer requested. It reconnects by itself; then unchanged rows may be yielded again, and so is
   * caughtUp, after a gone for each row that disappeared meanwhile.
   *
   * It ends and throws as `tail` does.
   */
  watchHouse(request: WatchRequest, options?: WatchOptions): AsyncGenerator<WatchEvent, never, void>;
}

/** Creates a client. It connects only when it is used. */
export function createClient(options: ClientOptions): Client {
  const transport = stringifiable(
    "transport" in options
      ? options.transport
      : defaultTransport(options.baseUrl.replace(/\/+$/, ""), options.token ? [bearer(options.token)] : []),
  );
  const services = createServices(transport);
  return {
    ...services,
    tail: (threadId, options) => tail(services.entries, threadId, options),
    run: (request, options) => run(services, request, options),
    ask: (question, options) => ask(services, question, options),
    watchHouse: (request, options) => watchHouse(services.houses, request, options),
  };
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("Authorization", `Bearer ${token}`);
    return next(request);
  };
}
