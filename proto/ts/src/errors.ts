import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema, type ErrorInfo } from "./gen/arbe/v1/error_pb.js";

/** What the reader of an error of the server can do about it; empty when the server gave nothing. */
export function nextStep(error: unknown): string {
  return info(error)?.next || metadata(error, "Arbe-Next");
}

/** The name of this very failure in the server's log. Only internal errors have one; empty otherwise. */
export function reference(error: unknown): string {
  return info(error)?.reference || metadata(error, "Arbe-Reference");
}

/** The id of the request that failed, which is in every line of the server's log about it; empty when it was not reached. */
export function requestId(error: unknown): string {
  return info(error)?.requestId || metadata(error, "X-Request-Id");
}

function info(error: unknown): ErrorInfo | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorInfoSchema)[0] : undefined;
}

function metadata(error: unknown, key: string): string {
  return error instanceof ConnectError ? (error.metadata.get(key) ?? "") : "";
}

/**
 * Whether calling again cannot heal an error. Only the server's own word counts for what is wrong with
 * the request, because connect gives the same code to an answer that was cut.
 */
export function isHopeless(error: unknown): boolean {
  if (!(error instanceof ConnectError)) {
    return false;
  }
  switch (error.code) {
    case Code.Unauthenticated:
    case Code.PermissionDenied:
    case Code.Unimplemented:
      return true;
    case Code.NotFound:
    case Code.InvalidArgument:
    case Code.OutOfRange:
    case Code.FailedPrecondition:
      return error.isWireError;
    default:
      return false;
  }
}
