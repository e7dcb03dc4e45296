import { fromJson, type DescMessage, type JsonValue, type MessageShape } from "@bufbuild/protobuf";

import type { Entry } from "./gen/arbe/v1/payload_pb.js";
import { kinds } from "./kinds.js";
import { withJson } from "./stringify.js";

/** The types of entries that this client knows, with their payloads. Types are an open set: expect others. */
export type Payloads = { [Type in keyof typeof kinds]: MessageShape<(typeof kinds)[Type]> };

/**
 * Returns the payload of an entry as a message if the entry is of the given type: `payloadOf(entry, "chat")?.replyTo`. A field
 * that the payload does not have has its default value, and one that this client does not know is left out. It returns undefined
 * for a payload that does not fit its type, which a program may have written.
 */
export function payloadOf<Type extends keyof Payloads>(entry: Pick<Entry, "type" | "payload">, type: Type): Payloads[Type] | undefined {
  if (entry.type !== type) {
    return undefined;
  }
  const schema: DescMessage = kinds[type];
  try {
    return withJson(schema, fromJson(schema, JSON.parse(entry.payload) as JsonValue, { ignoreUnknownFields: true })) as Payloads[Type];
  } catch {
    return undefined;
  }
}

/** Returns the payload of an entry of any type as it was written: its fields have the names that they have in the log. */
export function rawPayloadOf(entry: Pick<Entry, "payload">): unknown {
  return JSON.parse(entry.payload);
}
