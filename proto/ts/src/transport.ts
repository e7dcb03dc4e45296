import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

/** This package's version, as package.json has it. */
export const version = "0.1.0";

const userAgent: Interceptor = (next) => (request) => {
  request.header.set("User-Agent", `arbe-ts/${version} node/${process.versions.node}`);
  return next(request);
};

/** Returns the transport from Node to a server. */
export function defaultTransport(baseUrl: string, interceptors: Interceptor[]): Transport {
  return createConnectTransport({ baseUrl, interceptors: [...interceptors, userAgent], httpVersion: "1.1" });
}
