import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema, type ErrorInfo } from "./gen/arbe/v1/error_pb.js";
import { nextHeader, reasonHeader, referenceHeader, requestHeader } from "./names.js";

/** What the reader of a server's error can do about it; empty if the server gave no next step. */
export function nextStep(error: unknown): string {
  return info(error)?.next || metadata(error, nextHeader);
}

/**
 * What went wrong, for programs: `THREAD_CLOSED`, or the name of the error's code if nothing more exact is known, such as
 * `NOT_FOUND`; empty if the server was not reached. A reason keeps its name and its meaning; docs/errors.md lists all.
 */
export function reason(error: unknown): string {
  return info(error)?.reason || metadata(error, reasonHeader);
}

/** The reference of this failure in the server's log. Only internal errors have one; empty otherwise. */
export function reference(error: unknown): string {
  return info(error)?.reference || metadata(error, referenceHeader);
}

/** The id of the request that failed, which is in every line of the server's log about it; empty if the request did not reach the server. */
export function requestId(error: unknown): string {
  return info(error)?.requestId || metadata(error, requestHeader);
}

function info(error: unknown): ErrorInfo | undefined {
  return error instanceof ConnectError ? error.findDetails(ErrorInfoSchema)[0] : undefined;
}

function metadata(error: unknown, key: string): string {
  return error instanceof ConnectError ? (error.metadata.get(key) ?? "") : "";
}

/**
 * Whether calling again cannot fix an error. What is wrong with the request must come from the server itself,
 * because Connect gives the same codes to an answer that was cut off.
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
