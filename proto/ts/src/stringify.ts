import { toJson, type DescMessage, type Message } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";

/**
 * Returns a transport whose messages work with JSON.stringify. Positions in a log are bigints, which JSON.stringify refuses,
 * so each message gets a toJSON method that returns the contract's JSON: such numbers as strings, times as RFC 3339.
 */
export function stringifiable(transport: Transport): Transport {
  return {
    async unary(...call) {
      const response = await transport.unary(...call);
      mark(response.method.output, response.message);
      return response;
    },
    async stream(...call) {
      const response = await transport.stream(...call);
      return { ...response, message: markEach(response.method.output, response.message) };
    },
  };
}

async function* markEach<M extends Message>(schema: DescMessage, messages: AsyncIterable<M>): AsyncIterable<M> {
  for await (const message of messages) {
    mark(schema, message);
    yield message;
  }
}

/** Returns a message that works with JSON.stringify, as do all messages in it. */
export function withJson<M extends Message>(schema: DescMessage, message: M): M {
  mark(schema, message);
  return message;
}

/** Gives a message and all messages in it a toJSON method that is not enumerable. */
function mark(schema: DescMessage, message: unknown): void {
  if (typeof message !== "object" || message === null || !("$typeName" in message)) {
    return;
  }
  const value = message as Message;
  Object.defineProperty(value, "toJSON", { value: () => toJson(schema, value), configurable: true, writable: true });
  for (const field of schema.fields) {
    const inner = field.message;
    if (!inner) {
      continue;
    }
    const at = read(value, field.oneof?.localName, field.localName);
    switch (field.fieldKind) {
      case "list":
        (at as unknown[]).forEach((item) => mark(inner, item));
        break;
      case "map":
        Object.values(at as object).forEach((item) => mark(inner, item));
        break;
      default:
        mark(inner, at);
    }
  }
}

/** Returns the value of a field, which may be in a oneof; undefined when it is not set. */
function read(message: Message, oneof: string | undefined, field: string): unknown {
  const fields = message as unknown as Record<string, unknown>;
  if (oneof === undefined) {
    return fields[field];
  }
  const set = fields[oneof] as { case: string | undefined; value?: unknown };
  return set.case === field ? set.value : undefined;
}
