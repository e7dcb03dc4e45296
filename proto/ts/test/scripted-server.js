import http from "node:http";
import { ConnectError, Code } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { EntryService } from "../dist/index.js";

/** The credential the scripted server accepts. */
export const token = "arbe_0123456789abcdef";

const hi = { case: "chat", value: { text: "hi" } };

/**
 * Serves EntryService.tail as the contract says over a log of `length` entries, except where a test
 * scripts a failure: those of a real server cannot be timed to the byte.
 *
 * `onCall(call)` may end a call, by throwing or by returning "end". `onSend(event, call, cut)` may change an
 * event, throw, or cut the connection.
 */
export async function serve(t, { length = 0, onCall = () => {}, onSend = () => {} }) {
  let calls = 0;
  async function* tail({ after, typed }, context) {
    const call = ++calls;
    if (context.requestHeader.get("Authorization") !== `Bearer ${token}`) {
      throw new ConnectError("who are you?", Code.Unauthenticated);
    }
    if ((await onCall(call, context.signal)) === "end") return;
    const cut = () => [...sockets].forEach((socket) => socket.destroy());
    const made = (event) => {
      onSend(event, call, cut);
      return { event };
    };
    for (let seq = after + 1n; seq <= BigInt(length); seq++) {
      yield made({ case: "entry", value: { seq, type: "chat", payload: '{"text":"hi"}', typed: typed ? hi : undefined } });
    }
    yield made({ case: "caughtUp", value: { seq: BigInt(length) } });
    while (!context.signal.aborted) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      yield made({ case: "alive", value: {} });
    }
  }
  const server = http.createServer(connectNodeAdapter({ routes: (router) => router.service(EntryService, { tail }) }));
  const sockets = new Set();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { baseUrl: `http://127.0.0.1:${server.address().port}/`, calls: () => calls };
}
