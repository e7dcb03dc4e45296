import type { Entry } from "./gen/arbe/v1/payload_pb.js";

/** A message of a person or a bot. */
export interface ChatPayload {
  /** Markdown, with mentions as @handle. */
  text: string;
  /** The id of the entry that the message answers. */
  reply_to?: string;
  /** The files of the message. */
  attachments?: AttachmentPayload[];
}

/** A file of a message. The server fills in everything but the artifact's id. */
export interface AttachmentPayload {
  /** The artifact with the bytes. It may be deleted later. */
  artifact_id: string;
  name?: string;
  /** The type that the server found in the bytes. */
  media_type?: string;
  /** The number of bytes; absent for an empty file. */
  size?: number;
  /** The size of an image in pixels; absent for other files, and for an image that is too large to be shown. */
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
  /** The command's two outputs are kept apart, for the program that started it. */
  separate?: boolean;
  /** The command has an input, which that program writes. */
  input?: boolean;
  /** The command has a terminal, which that program reads and writes. This is its size at first. */
  terminal?: { rows: number; columns: number; kind?: string; keep?: boolean };
  /** The directory in which the command starts, and its environment variables besides those of its environment. */
  directory?: string;
  env?: Record<string, string>;
}

/** The end of a command, and its output. */
export interface CommandResultPayload {
  /** The id of the command entry. */
  command_id: string;
  sandbox_id?: string;
  /** 124 if the command timed out, 128+n if signal n ended it, and -1 if it did not run or its end is unknown. */
  exit_code: number;
  /** The output, or the beginning of a large output. */
  output: string;
  /** The end of a large output. */
  output_tail?: string;
  /** The size of the whole output, in bytes. */
  output_bytes: number;
  truncated?: boolean;
  /** The artifact with a truncated output as it was printed, its size, and whether it has only the first part. */
  artifact_id?: string;
  artifact_bytes?: number;
  artifact_part?: boolean;
  /** The number of bytes that a command with separate outputs printed. */
  raw_bytes?: number;
  /** The output went to a terminal, so it contains control sequences. */
  terminal?: boolean;
  duration_ms: number;
  timed_out?: boolean;
  cancelled?: boolean;
  /** The agent who cancelled the command, and the strongest signal that it was sent. */
  cancelled_by?: string;
  signal?: string;
  out_of_memory?: boolean;
  /** Why the command could not run, and what to do. */
  error?: string;
}

/** Another sandbox took the place of the thread's dead one. */
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

/** The first entry of a fork after the entries that it shares with its source. */
export interface ForkedPayload {
  thread_id: string;
  /** The position of the last shared entry. */
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

/** The types of entries that this client knows, with their payloads. Types are an open set: expect others. */
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

/** Returns the payload of an entry if the entry is of the given type: `payloadOf(entry, "chat")?.text`. */
export function payloadOf<Type extends keyof Payloads>(entry: Entry, type: Type): Payloads[Type] | undefined;
/** Returns the payload of an entry of any type. */
export function payloadOf(entry: Entry): unknown;
export function payloadOf(entry: Entry, type: string = entry.type): unknown {
  return entry.type === type ? JSON.parse(entry.payload) : undefined;
}
