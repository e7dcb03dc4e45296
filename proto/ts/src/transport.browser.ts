import type { Interceptor, Transport } from "@connectrpc/connect";

/** Bundlers for the browser use this file in place of transport.ts, which needs Node. */
export function defaultTransport(_baseUrl: string, _interceptors: Interceptor[]): Transport {
  throw new Error("there is no default transport in a browser: pass { transport } from @connectrpc/connect-web");
}
