import type { Client as ServiceClient } from "@connectrpc/connect";

import { isHopeless } from "./errors.js";
import type { EntryService, TailResponse } from "./gen/arbe/v1/entry_pb.js";

/** What a tail yields: an entry, a delta, or that all that was there has been yielded. */
export type TailEvent = Extract<TailResponse["event"], { case: "entry" | "delta" | "caughtUp" }>;

export interface TailOptions {
  /** Start behind this position. Defaults to 0, the log's start. */
  after?: bigint | number;
  /** Ends the tail. */
  signal?: AbortSignal;
  /** Called each time a connection ended, and another will be tried after waitMs. */
  onDisconnect?: (error: unknown, waitMs: number) => void;
  /**
   * After how much silence a connection is taken for dead, in milliseconds. Defaults to 40,000; less than
   * the 15,000 in which a server says that it is alive makes healthy connections end.
   */
  silenceMs?: number;
}

const minDelayMs = 100;
const maxDelayMs = 5_000;

/** Implements `Client.tail`. */
export async function* tail(
  entries: Pick<ServiceClient<typeof EntryService>, "tail">,
  threadId: string,
  { after = 0, signal, onDisconnect, silenceMs = 40_000 }: TailOptions = {},
): AsyncGenerator<TailEvent, never, void> {
  let position = BigInt(after);
  let delay = minDelayMs;
  for (;;) {
    signal?.throwIfAborted();
    const watch = new Watch(silenceMs);
    let ended: unknown = new Error("the server ended the connection");
    try {
      const either = signal ? AbortSignal.any([signal, watch.signal]) : watch.signal;
      watch.start();
      for await (const { event } of entries.tail({ threadId, after: position }, { signal: either })) {
        // The watch runs while we wait for the server, not while the caller thinks about what came.
        watch.stop();
        delay = minDelayMs;
        if (event.case === "entry") {
          // Positions have no gap, so an entry that is not the next one proves the connection wrong: one
          // that was seen before is dropped, for one that came too early the next connection asks again.
          const { seq } = event.value;
          if (seq > position + 1n) {
            ended = new Error(`entry ${seq} came after entry ${position}`);
            break;
          }
          if (seq === position + 1n) {
            position = seq;
            yield event;
          }
        } else if (event.case === "delta" || event.case === "caughtUp") {
          yield event;
        }
        watch.start();
      }
    } catch (error) {
      ended = watch.signal.aborted ? watch.signal.reason : error;
    } finally {
      watch.stop();
    }
    signal?.throwIfAborted();
    if (isHopeless(ended)) {
      throw ended;
    }
    // Half of it is chance, so that the tails of a restarted server do not come all at once.
    const wait = delay / 2 + (Math.random() * delay) / 2;
    delay = Math.min(2 * delay, maxDelayMs);
    onDisconnect?.(ended, wait);
    await sleep(wait, signal);
  }
}

/** Aborts its signal when it is not stopped in time. */
class Watch {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ms: number) {}

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  start(): void {
    this.#timer = setTimeout(() => this.#controller.abort(new Error(`the server said nothing for ${this.ms} ms`)), this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** Waits, at most until the signal is aborted. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}
