import { fromJson, type DescMessage, type JsonValue, type MessageShape } from "@bufbuild/protobuf";

import {
  AgentSpawnSchema,
  BotChangedSchema,
  BotCreatedSchema,
  CancelRequestedSchema,
  ChatSchema,
  ChatDeletedSchema,
  ChatEditedSchema,
  ChatReactedSchema,
  ChildFinishedSchema,
  ChildOverdueSchema,
  CommandSchema,
  CommandResultSchema,
  CommandWaitingSchema,
  EnvironmentPreparedSchema,
  ForkedSchema,
  HeartbeatSchema,
  HostAllowedSchema,
  HostRefusedSchema,
  HouseCreatedSchema,
  InviteRevokedSchema,
  InvitedSchema,
  LimitNearSchema,
  MemberJoinedSchema,
  MemberRemovedSchema,
  PermissionAnsweredSchema,
  PermissionAskedSchema,
  PiAssistantSchema,
  PiCompactionSchema,
  PiFailedSchema,
  PiToolResultSchema,
  QueueCancelledSchema,
  QueueEditedSchema,
  QueueMovedSchema,
  QueueTakenSchema,
  QueueTimedSchema,
  RoleChangedSchema,
  RunFinishedSchema,
  SandboxResumedSchema,
  SandboxWokenSchema,
  SessionOrphanedSchema,
  SkippedSchema,
  StatusChangedSchema,
  TurnEndedSchema,
  TurnFellBackSchema,
  TurnStartedSchema,
  TurnSteeredSchema,
  TurnWaitingSchema,
  type Entry,
} from "./gen/arbe/v1/payload_pb.js";
import { withJson } from "./stringify.js";

/** The types of entries that this client knows, with the messages of their payloads. Types are an open set: expect others. */
const schemas = {
  "chat": ChatSchema,
  "command": CommandSchema,
  "command_result": CommandResultSchema,
  "signal.dispatch.command_waiting": CommandWaitingSchema,
  "pi.assistant": PiAssistantSchema,
  "pi.tool_result": PiToolResultSchema,
  "pi.compaction": PiCompactionSchema,
  "signal.dispatch.turn_started": TurnStartedSchema,
  "signal.dispatch.turn_steered": TurnSteeredSchema,
  "signal.dispatch.turn_waiting": TurnWaitingSchema,
  "signal.dispatch.turn_fell_back": TurnFellBackSchema,
  "signal.dispatch.limit_near": LimitNearSchema,
  "signal.dispatch.turn_ended": TurnEndedSchema,
  "signal.permission.asked": PermissionAskedSchema,
  "signal.permission.answered": PermissionAnsweredSchema,
  "signal.dispatch.skipped": SkippedSchema,
  "sandbox_resumed": SandboxResumedSchema,
  "signal.sandbox.woken": SandboxWokenSchema,
  "signal.sandbox.host_refused": HostRefusedSchema,
  "signal.environment.host_allowed": HostAllowedSchema,
  "signal.thread.status_changed": StatusChangedSchema,
  "agent_spawn": AgentSpawnSchema,
  "signal.thread.heartbeat": HeartbeatSchema,
  "signal.thread.run_finished": RunFinishedSchema,
  "signal.thread.pi_failed": PiFailedSchema,
  "signal.thread.pi_session_orphaned": SessionOrphanedSchema,
  "signal.thread.cancel_requested": CancelRequestedSchema,
  "signal.thread.child_finished": ChildFinishedSchema,
  "signal.thread.child_overdue": ChildOverdueSchema,
  "signal.queue.edited": QueueEditedSchema,
  "signal.queue.moved": QueueMovedSchema,
  "signal.queue.timed": QueueTimedSchema,
  "signal.queue.cancelled": QueueCancelledSchema,
  "signal.queue.taken": QueueTakenSchema,
  "signal.chat.edited": ChatEditedSchema,
  "signal.chat.deleted": ChatDeletedSchema,
  "signal.chat.reacted": ChatReactedSchema,
  "signal.thread.forked": ForkedSchema,
  "signal.house.created": HouseCreatedSchema,
  "signal.house.invited": InvitedSchema,
  "signal.house.invite_revoked": InviteRevokedSchema,
  "signal.house.member_joined": MemberJoinedSchema,
  "signal.house.member_removed": MemberRemovedSchema,
  "signal.house.role_changed": RoleChangedSchema,
  "signal.house.bot_created": BotCreatedSchema,
  "signal.house.bot_changed": BotChangedSchema,
  "signal.environment.prepared": EnvironmentPreparedSchema,
} as const satisfies Record<string, DescMessage>;

/** The types of entries that this client knows, with their payloads. */
export type Payloads = { [Type in keyof typeof schemas]: MessageShape<(typeof schemas)[Type]> };

/**
 * Returns the payload of an entry as a message if the entry is of the given type: `payloadOf(entry, "chat")?.replyTo`. A field
 * that the payload does not have has its default value, and one that this client does not know is left out. It returns undefined
 * for a payload that does not fit its type, which a program may have written.
 */
export function payloadOf<Type extends keyof Payloads>(entry: Pick<Entry, "type" | "payload">, type: Type): Payloads[Type] | undefined {
  if (entry.type !== type) {
    return undefined;
  }
  const schema: DescMessage = schemas[type];
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
