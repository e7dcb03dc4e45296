import type { Entry } from "./gen/arbe/v1/payload_pb.js";

/** What a person or a bot says. */
export interface ChatPayload {
  /** Markdown; mentions are @handle in it. */
  text: string;
  /** The id of the entry it answers. */
  reply_to?: string;
  /** The files that belong to it. */
  attachments?: AttachmentPayload[];
}

/** A file that belongs to a chat. The server fills in all but the artifact's id. */
export interface AttachmentPayload {
  /** The artifact that has the bytes; it may be deleted later. */
  artifact_id: string;
  name?: string;
  /** What the server found the bytes to be. */
  media_type?: string;
  /** The number of bytes; absent if there are none. */
  size?: number;
  /** The size of an image in pixels; absent for what is none, or is too large to be shown. */
  width?: number;
  height?: number;
}

/** Someone ran a command on the thread's sandbox. */
export interface CommandPayload {
  /** A line for the shell; otherwise argv is set. */
  command?: string;
  argv?: string[];
  sandbox_id?: string;
  timeout_ms?: number;
  environment_id?: string;
  /** Its two outputs are kept apart, for the program that asked for it. */
  separate?: boolean;
  /** It has an input, which that program writes. */
  input?: boolean;
  /** It has a terminal, which that program reads and writes; of this size at first. */
  terminal?: { rows: number; columns: number; kind?: string; keep?: boolean };
  /** Where it starts, and the environment variables that it gets besides those of its environment. */
  directory?: string;
  env?: Record<string, string>;
}

/** How a command ended, and what it printed. */
export interface CommandResultPayload {
  /** The id of the command entry. */
  command_id: string;
  sandbox_id?: string;
  /** 124: it ran out of time; 128+n: signal n ended it; -1: it never ran, or it is not known. */
  exit_code: number;
  /** What it printed; of a large output the head. */
  output: string;
  /** The end of a large output. */
  output_tail?: string;
  /** How much it printed in all, in bytes. */
  output_bytes: number;
  truncated?: boolean;
  /** The artifact that has a truncated output as it was printed, its size, and whether it has the first part only. */
  artifact_id?: string;
  artifact_bytes?: number;
  artifact_part?: boolean;
  /** How many bytes a command with separate outputs printed. */
  raw_bytes?: number;
  /** The output went to a terminal, so it has control sequences. */
  terminal?: boolean;
  duration_ms: number;
  timed_out?: boolean;
  cancelled?: boolean;
  /** Who cancelled it, and the strongest signal that it got then. */
  cancelled_by?: string;
  signal?: string;
  out_of_memory?: boolean;
  /** Why it could not run, and what to do. */
  error?: string;
}

/** The thread's sandbox was dead and another one took its place. */
export interface SandboxResumedPayload {
  sandbox_id: string;
  previous_sandbox_id: string;
}

/** The thread's status changed. */
export interface StatusChangedPayload {
  from: string;
  to: string;
  reason?: string;
}

/** The first entry of a fork after those that it shares with its source. */
export interface ForkedPayload {
  thread_id: string;
  /** The last entry that both share. */
  seq: number;
}

/** The first entry of a house's primary thread. */
export interface HouseCreatedPayload {
  house_id: string;
  name: string;
}

/** How a new sandbox was prepared. */
export interface EnvironmentPreparedPayload {
  sandbox_id: string;
  steps: { name: string; exit_code: number; duration_ms: number; output?: string }[];
}

/** The types of entries this client knows, and what each says. Types are an open set: expect others. */
export interface Payloads {
  chat: ChatPayload;
  command: CommandPayload;
  command_result: CommandResultPayload;
  sandbox_resumed: SandboxResumedPayload;
  "signal.thread.status_changed": StatusChangedPayload;
  "signal.thread.forked": ForkedPayload;
  "signal.house.created": HouseCreatedPayload;
  "signal.environment.prepared": EnvironmentPreparedPayload;
}

/** What an entry says, if it is of that type: `payloadOf(entry, "chat")?.text`. */
export function payloadOf<Type extends keyof Payloads>(entry: Entry, type: Type): Payloads[Type] | undefined;
/** What an entry of any type says. */
export function payloadOf(entry: Entry): unknown;
export function payloadOf(entry: Entry, type: string = entry.type): unknown {
  return entry.type === type ? JSON.parse(entry.payload) : undefined;
}
