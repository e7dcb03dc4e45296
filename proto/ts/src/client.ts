import { type Interceptor, type Transport } from "@connectrpc/connect";

import { ask, type AskOptions, type AskPiece, type AskQuestion } from "./ask.js";
import { createServices, type Services } from "./services.js";
import { stringifiable } from "./stringify.js";
import { run, type RunOptions, type RunRequest, type RunResult } from "./run.js";
import { tail, type TailEvent, type TailOptions } from "./tail.js";
import { watchHouse, type WatchEvent, type WatchOptions, type WatchRequest } from "./watch.js";
import { defaultTransport } from "#transport";

/** The options of {@link createClient}: a server and a credential, or a transport that has both. */
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
 * Calls one server with one credential. The errors of all calls are `ConnectError`s. JSON.stringify turns a message that a
 * call returns, and every message in it, into the contract's JSON: positions and sizes, which are bigints, become strings.
 */
export interface Client extends Services {
  /**
   * Replays a thread's log and then follows it: every entry exactly once, in order, however often
   * connections are cut and servers restart in between. It reconnects from the position that it has reached.
   * While attempts make no progress, the waits between them grow to five seconds; it calls `onDisconnect`
   * before each wait.
   *
   * Besides entries it yields deltas, which are previews and may be missed or repeated around a
   * reconnect (their offsets show it), and caughtUp, once per connection.
   *
   * It ends when the loop is left. It throws the signal's reason when the signal is aborted, a `GapError` when
   * the log itself has a gap, and a `ConnectError` when reconnecting cannot help: if the credential is not
   * accepted, if the thread does not exist, or if the position is past the log's end. The last also happens
   * after a restore that lost the last entries.
   */
  tail(threadId: string, options?: TailOptions): AsyncGenerator<TailEvent, never, void>;

  /**
   * Runs a command on a thread's sandbox and returns how it ended, however often connections are cut and servers restart
   * meanwhile. An exit code other than 0 is not an error.
   *
   * When the signal is aborted, it throws the signal's reason, and the command continues. When one of the caller's functions
   * or stdin throws, it cancels the command and throws the same error. It throws an `OutputError` when the output did not
   * arrive completely. Other errors are those of `threads.runCommand` and `tail`.
   */
  run(request: RunRequest, options?: RunOptions): Promise<RunResult>;

  /**
   * Asks a bot a question and yields the response, however often connections are cut and servers restart meanwhile. The last
   * piece has the answer. The failure of a bot is not an error: the answer's outcome says why.
   *
   * When the signal is aborted, it throws the signal's reason. Then, and when the loop is left, the bot continues. To end its
   * turn, call `threads.stopTurn`. It throws a `LostError` when the server could not be reached for patienceMs. Other errors
   * are those of the calls that ask, and of `tail`.
   */
  ask(question: AskQuestion, options?: AskOptions): AsyncGenerator<AskPiece, void, void>;

  /**
   * Yields the rows of a house that the request names, and their changes, however often connections are cut and
   * servers restart in between: first every row, then caughtUp, then a row whenever it changes, and a gone when it is
   * deleted or no longer requested. After a reconnect it may repeat unchanged rows. It then yields a gone for each row
   * that has disappeared, and caughtUp again.
   *
   * It ends and throws as `tail` does.
   */
  watchHouse(request: WatchRequest, options?: WatchOptions): AsyncGenerator<WatchEvent, never, void>;
}

/** Creates a client. The client connects at its first call. */
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
