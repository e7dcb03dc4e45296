import type { Client as ServiceClient } from "@connectrpc/connect";

import { isHopeless } from "./errors.js";
import type { EntryService } from "./gen/arbe/v1/entry_pb.js";
import type { CommandResult, Entry } from "./gen/arbe/v1/payload_pb.js";
import { OutputStream, type ThreadService } from "./gen/arbe/v1/thread_pb.js";
import { payloadOf } from "./payload.js";
import { Pace } from "./reconnect.js";
import { tail, type TailEvent } from "./tail.js";

/** A command for {@link Client.run}, and the thread in whose sandbox it runs. */
export interface RunRequest {
  threadId: string;
  /** A line for the shell, or a program with its arguments, which no shell interprets. */
  command: string | string[];
  /** The id of the command entry. Repeating the call with the same id starts nothing twice. Defaults to a random id. */
  id?: string;
  /** How long the command may take. Defaults to the environment's limit. */
  timeoutMs?: number;
  /** The environment for the sandbox, if the thread has no sandbox yet. */
  environmentId?: string;
}

export interface RunOptions {
  /**
   * These two functions receive every byte of the command's two outputs, separately, as it arrives. The command waits for a
   * promise that they return. Without both functions, the outputs are merged, and only the result has them.
   */
  onStdout?: (data: Uint8Array) => void | Promise<void>;
  onStderr?: (data: Uint8Array) => void | Promise<void>;
  /**
   * Keeps standard output out of the thread's log: only `onStdout` gets it. The log and the result have only standard error. Use
   * it for large output that nobody reads in the log. By default, the log keeps a part of all output.
   */
  unlogged?: boolean;
  /** The command's input. By default, the input is empty. */
  stdin?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  /** Called for every event of the thread after the command, up to the command's result. */
  onEvent?: (event: TailEvent) => void;
  /** Called when a connection to the thread's log has ended. The next attempt comes after waitMs. */
  onDisconnect?: (error: unknown, waitMs: number) => void;
  /** Ends the call but not the command. To end the command, call `threads.cancelCommand`. */
  signal?: AbortSignal;
}

/** How a command ended. */
export type RunResult = CommandResult & {
  /** The command_result entry. */
  entry: Entry;
};

/** The error of `run` when the output did not arrive completely. `result` says how the command ended, if that is known. */
export class OutputError extends Error {
  result?: RunResult;

  constructor(
    /** How many bytes of the output arrived. */
    readonly position: bigint,
    cause: unknown,
  ) {
    super(`the command's output is not complete after byte ${position}: ${cause}`, { cause });
    this.name = "OutputError";
  }
}

interface Services {
  entries: Pick<ServiceClient<typeof EntryService>, "tail">;
  threads: Pick<ServiceClient<typeof ThreadService>, "runCommand" | "readOutput" | "writeInput" | "cancelCommand">;
}

/** How often a reader or writer that waits for something else tells the server that it is still there. */
const stayEveryMs = 10_000;
/** How many bytes of input one call sends. */
const inputPiece = 256 * 1024;

/** Implements `Client.run`. */
export async function run(services: Services, request: RunRequest, options: RunOptions = {}): Promise<RunResult> {
  const { threadId, command, timeoutMs, environmentId = "", id = crypto.randomUUID() } = request;
  const separate = options.onStdout !== undefined || options.onStderr !== undefined;
  const started = await services.threads.runCommand(
    {
      threadId,
      id,
      environmentId,
      separate,
      unlogged: options.unlogged ?? false,
      input: options.stdin !== undefined,
      ...(timeoutMs !== undefined && { timeout: { seconds: BigInt(Math.floor(timeoutMs / 1000)), nanos: Math.floor(timeoutMs % 1000) * 1e6 } }),
      what: typeof command === "string" ? { case: "command", value: command } : { case: "argv", value: { args: command } },
    },
    options.signal && { signal: options.signal },
  );
  const leaving = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, leaving.signal]) : leaving.signal;
  const attached = { services, threadId, commandId: id, signal };
  try {
    const reading = separate ? readOutput(attached, options) : Promise.resolve();
    // An error of the caller's functions ends the call at once. Lost output is reported after the command has ended.
    const thrown = new Promise<never>((_, reject) => reading.catch((error) => error instanceof OutputError || reject(error)));
    const writing = options.stdin ? writeInput(attached, options.stdin) : new Promise<never>(() => {});
    const failed = new Promise<never>((_, reject) => writing.catch(reject));
    const result = await Promise.race([follow(services, threadId, started.entry!.seq, started.resultId, signal, options), thrown, failed]);
    try {
      await reading;
    } catch (error) {
      if (error instanceof OutputError) error.result = result;
      throw error;
    }
    return result;
  } catch (error) {
    options.signal?.throwIfAborted();
    if (!(error instanceof OutputError)) {
      // Nobody reads the command's output, or its input was cut off.
      if (separate) await services.threads.readOutput({ threadId, commandId: id, leave: true }).catch(() => {});
      await services.threads.cancelCommand({ threadId, commandId: id }).catch(() => {});
    }
    throw error;
  } finally {
    leaving.abort();
  }
}

async function follow(services: Services, threadId: string, after: bigint, resultId: string, signal: AbortSignal, options: RunOptions): Promise<RunResult> {
  for await (const event of tail(services.entries, threadId, { after, signal, ...(options.onDisconnect && { onDisconnect: options.onDisconnect }) })) {
    options.onEvent?.(event);
    if (event.case === "entry" && event.value.id === resultId) {
      return Object.assign(payloadOf(event.value, "command_result")!, { entry: event.value });
    }
  }
  throw new Error("the tail ended"); // not reached, because a tail ends only by throwing
}

interface Attached {
  services: Services;
  threadId: string;
  commandId: string;
  signal: AbortSignal;
}

async function readOutput(attached: Attached, { onStdout, onStderr }: RunOptions): Promise<void> {
  const { services, threadId, commandId, signal } = attached;
  for (let position = 0n; ; ) {
    let got;
    try {
      got = await again(signal, () => services.threads.readOutput({ threadId, commandId, position }, { signal }));
    } catch (error) {
      throw new OutputError(position, error);
    }
    if (got.ended) return;
    const at = position;
    const staying = setInterval(() => {
      services.threads.readOutput({ threadId, commandId, position: at, stay: true }, { signal }).catch(() => {}); // an error shows at the next call
    }, stayEveryMs);
    try {
      for (const { stream, data } of got.pieces) {
        await (stream === OutputStream.STDERR ? onStderr : onStdout)?.(data);
      }
    } finally {
      clearInterval(staying);
    }
    position = got.position;
  }
}

async function writeInput(attached: Attached, stdin: NonNullable<RunOptions["stdin"]>): Promise<void> {
  const { services, threadId, commandId, signal } = attached;
  let position = 0n;
  // send reports whether the command still reads its input.
  const send = async (data: Uint8Array, end: boolean): Promise<boolean> => {
    for (let rest = data, first = true; first || rest.length > 0; first = false) {
      const piece = rest.subarray(0, inputPiece);
      const last = end && piece.length === rest.length;
      const got = await again(signal, () => services.threads.writeInput({ threadId, commandId, position, data: piece, end: last }, { signal }));
      if (got.closed) return false;
      rest = rest.subarray(Number(got.position - position));
      position = got.position;
    }
    return true;
  };
  const staying = setInterval(() => {
    services.threads.writeInput({ threadId, commandId, position }, { signal }).catch(() => {}); // an error shows at the next call
  }, stayEveryMs);
  // stdin may never yield again, and its iteration cannot be interrupted.
  signal.addEventListener("abort", () => clearInterval(staying), { once: true });
  try {
    for await (const data of stdin) {
      if (!(await reads(send(data, false)))) return;
    }
    await reads(send(new Uint8Array(), true));
  } finally {
    clearInterval(staying);
  }

  // When the server refuses input, it ends the command, and the result says why.
  async function reads(sent: Promise<boolean>): Promise<boolean> {
    return sent.catch(() => false);
  }
}

/** Repeats a call until it succeeds, the signal is aborted, or calling again cannot help. */
async function again<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  for (const pace = new Pace(); ; ) {
    pace.begin();
    try {
      return await call();
    } catch (error) {
      if (signal.aborted || isHopeless(error)) throw error;
      await pace.pause(false, signal, () => {});
    }
  }
}
