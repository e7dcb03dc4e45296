import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

/** The way to a server from Node. */
export function defaultTransport(baseUrl: string, interceptors: Interceptor[]): Transport {
  return createConnectTransport({ baseUrl, interceptors, httpVersion: "1.1" });
}
