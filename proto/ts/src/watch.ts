import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Client as ServiceClient } from "@connectrpc/connect";

import { isHopeless } from "./errors.js";
import { GoneSchema, type HouseService, type WatchHouseRequestSchema, type WatchHouseResponse } from "./gen/arbe/v1/house_pb.js";
import { Pace, Watch } from "./reconnect.js";
import type { TailOptions } from "./tail.js";

/** An event of a watch: a row, that a row is gone, where the list continues, or that all existing rows have been yielded. */
export type WatchEvent = Exclude<WatchHouseResponse["event"], { case: "alive" } | { case: undefined }>;

/** The rows to watch: `{ houseId, threads: 50 }`. */
export type WatchRequest = MessageInitShape<typeof WatchHouseRequestSchema>;

export type WatchOptions = Omit<TailOptions, "after" | "typed">;

/** Implements `Client.watchHouse`. */
export async function* watchHouse(
  houses: Pick<ServiceClient<typeof HouseService>, "watchHouse">,
  request: WatchRequest,
  { signal, onDisconnect, silenceMs = 40_000 }: WatchOptions = {},
): AsyncGenerator<WatchEvent, never, void> {
  const pace = new Pace();
  /** The rows that were yielded, by kind and id, with the last connection that sent them. */
  const known = new Map<string, { kind: string; id: string; sent: number }>();
  for (let connection = 1; ; connection++) {
    signal?.throwIfAborted();
    pace.begin();
    let caughtUp = false;
    const watch = new Watch(silenceMs);
    let ended: unknown = new Error("the server ended the connection");
    try {
      const either = signal ? AbortSignal.any([signal, watch.signal]) : watch.signal;
      watch.start();
      for await (const { event } of houses.watchHouse(request, { signal: either })) {
        // The watch runs while we wait for the server, not while the caller works on an event.
        watch.stop();
        if (event.case === "gone") {
          known.delete(`${event.value.kind} ${event.value.id}`);
        } else if (event.case === "caughtUp") {
          caughtUp = true;
          for (const [row, { kind, id, sent }] of [...known]) {
            if (sent < connection) {
              known.delete(row);
              yield { case: "gone", value: create(GoneSchema, { kind, id }) };
            }
          }
        } else {
          const row = rowOf(event);
          if (row) {
            known.set(`${row.kind} ${row.id}`, { ...row, sent: connection });
          }
        }
        if (event.case !== "alive" && event.case !== undefined) {
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
    if (isHopeless(ended)) {
      throw ended;
    }
    await pace.pause(caughtUp, signal, (waitMs) => onDisconnect?.(ended, waitMs));
  }
}

/** The row that an event is about. */
function rowOf(event: WatchHouseResponse["event"]): { kind: string; id: string } | undefined {
  switch (event.case) {
    case "thread":
    case "sandbox":
    case "environment":
    case "bot":
      return { kind: event.case, id: event.value.id };
    case "member":
      return { kind: "member", id: event.value.agent?.id ?? "" };
    default:
      return undefined;
  }
}
