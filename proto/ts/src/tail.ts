import type { Client as ServiceClient } from "@connectrpc/connect";

import { isHopeless } from "./errors.js";
import type { EntryService, TailResponse } from "./gen/arbe/v1/entry_pb.js";
import { Pace, Watch } from "./reconnect.js";

/** An event of a tail: an entry, a delta, or caughtUp, which says that all existing entries have been yielded. */
export type TailEvent = Extract<TailResponse["event"], { case: "entry" | "delta" | "caughtUp" }>;

export interface TailOptions {
  /** The tail starts after this position. Defaults to 0, the log's start. */
  after?: bigint | number;
  /** Makes the tail yield typed entries: `entry.typed` is the payload as a message of its type. Defaults to false. */
  typed?: boolean;
  /** Ends the tail. */
  signal?: AbortSignal;
  /** Called when a connection has ended. The next attempt comes after waitMs. */
  onDisconnect?: (error: unknown, waitMs: number) => void;
  /**
   * How long a connection may be silent before it counts as dead, in milliseconds. Defaults to 40,000. A server sends a sign
   * of life every 20,000, so a lower value ends healthy connections.
   */
  silenceMs?: number;
}

/** How many connections in a row must leave out the same entries before the tail takes them for lost. */
const sameGap = 6;

/**
 * The error of a tail when the log itself has a gap: several connections in a row delivered the entry `found`
 * although `position + 1` comes next. A new tail after `found - 1` skips the gap.
 */
export class GapError extends Error {
  constructor(
    /** The last entry before the gap. */
    readonly position: bigint,
    /** The first entry after it. */
    readonly found: bigint,
  ) {
    super(`entry ${found} came after entry ${position}`);
    this.name = "GapError";
  }
}

/** Implements `Client.tail`. */
export async function* tail(
  entries: Pick<ServiceClient<typeof EntryService>, "tail">,
  threadId: string,
  { after = 0, typed = false, signal, onDisconnect, silenceMs = 40_000 }: TailOptions = {},
): AsyncGenerator<TailEvent, never, void> {
  let position = BigInt(after);
  const pace = new Pace();
  let gap: GapError | undefined;
  let gaps = 0;
  for (;;) {
    signal?.throwIfAborted();
    const before = position;
    pace.begin();
    const watch = new Watch(silenceMs);
    let ended: unknown = new Error("the server ended the connection");
    try {
      const either = signal ? AbortSignal.any([signal, watch.signal]) : watch.signal;
      watch.start();
      for await (const { event } of entries.tail({ threadId, after: position, typed }, { signal: either })) {
        // The watch runs while we wait for the server, not while the caller works on an event.
        watch.stop();
        if (event.case === "entry") {
          // Positions have no gap. Drop an entry that was already yielded. If an entry comes too early, end the connection, so
          // that the next one asks for the missing entries.
          const { seq } = event.value;
          if (seq > position + 1n) {
            ended = new GapError(position, seq);
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
      watch.close();
    }
    signal?.throwIfAborted();
    if (ended instanceof GapError) {
      gaps = gap?.position === ended.position && gap.found === ended.found ? gaps + 1 : 1;
      gap = ended;
    }
    if (isHopeless(ended) || (ended instanceof GapError && gaps === sameGap)) {
      throw ended;
    }
    await pace.pause(position > before, signal, (waitMs) => onDisconnect?.(ended, waitMs));
  }
}
