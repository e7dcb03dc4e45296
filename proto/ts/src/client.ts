import { createClient as createService, type Client as ServiceClient, type Interceptor, type Transport } from "@connectrpc/connect";

import { AgentService } from "./gen/arbe/v1/agent_pb.js";
import { CredentialService } from "./gen/arbe/v1/credential_pb.js";
import { EntryService } from "./gen/arbe/v1/entry_pb.js";
import { EnvironmentService } from "./gen/arbe/v1/environment_pb.js";
import { HouseService } from "./gen/arbe/v1/house_pb.js";
import { SandboxService } from "./gen/arbe/v1/sandbox_pb.js";
import { ThreadService } from "./gen/arbe/v1/thread_pb.js";
import { tail, type TailEvent, type TailOptions } from "./tail.js";
import { defaultTransport } from "#transport";

/** What {@link createClient} needs to know: a server with a credential, or a transport that knows both. */
export type ClientOptions =
  | {
      /** The server's address, such as "http://127.0.0.1:8420". */
      baseUrl: string;
      /** An API key, a session or a thread's token; it travels as "Authorization: Bearer …". None calls without a credential. */
      token?: string;
    }
  | {
      /** Any Connect transport, for a browser (@connectrpc/connect-web), a proxy or a test. */
      transport: Transport;
    };

/** One server, called with one credential. Errors of all calls are `ConnectError`s. */
export interface Client {
  readonly houses: ServiceClient<typeof HouseService>;
  readonly agents: ServiceClient<typeof AgentService>;
  readonly credentials: ServiceClient<typeof CredentialService>;
  readonly threads: ServiceClient<typeof ThreadService>;
  readonly entries: ServiceClient<typeof EntryService>;
  readonly environments: ServiceClient<typeof EnvironmentService>;
  readonly sandboxes: ServiceClient<typeof SandboxService>;

  /**
   * Replays a thread's log and then follows it: every entry exactly once, in order, however often
   * connections are cut and servers restart in between. It connects again by itself, from the position
   * it reached, with a growing delay of at most five seconds.
   *
   * Besides entries it yields deltas, which are previews and may be missed or repeated around a
   * reconnect (their offset tells), and caughtUp, once per connection.
   *
   * It ends when the loop is left. It throws the signal's reason when that is aborted, and a
   * `ConnectError` that connecting again cannot heal: the credential is not accepted, the thread is not
   * there or was deleted, the position is past the log's end.
   */
  tail(threadId: string, options?: TailOptions): AsyncGenerator<TailEvent, never, void>;
}

/** Makes a client. It reaches nothing by itself. */
export function createClient(options: ClientOptions): Client {
  const transport =
    "transport" in options
      ? options.transport
      : defaultTransport(options.baseUrl.replace(/\/+$/, ""), options.token ? [bearer(options.token)] : []);
  const entries = createService(EntryService, transport);
  return {
    houses: createService(HouseService, transport),
    agents: createService(AgentService, transport),
    credentials: createService(CredentialService, transport),
    threads: createService(ThreadService, transport),
    entries,
    environments: createService(EnvironmentService, transport),
    sandboxes: createService(SandboxService, transport),
    tail: (threadId, options) => tail(entries, threadId, options),
  };
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("Authorization", `Bearer ${token}`);
    return next(request);
  };
}
