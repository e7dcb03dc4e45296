import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema, type ErrorInfo } from "./gen/arbe/v1/error_pb.js";
import { nextHeader, reasonHeader, referenceHeader, requestHeader } from "./names.js";

/** Returns what the reader of a server's error can do about it; empty if the server suggests nothing. */
export function nextStep(error: unknown): string {
  return info(error)?.next || metadata(error, nextHeader);
}

/**
 * Returns the name of what went wrong, for programs, such as `THREAD_CLOSED`. If the server knows nothing more exact, it is
 * the name of the error's code, such as `NOT_FOUND`. It is empty if the server was not reached. A reason keeps its name and
 * its meaning; docs/errors.md lists all.
 */
export function reason(error: unknown): string {
  return info(error)?.reason || metadata(error, reasonHeader);
}

/** Returns the id of a failure in the server's log, for its operator; empty unless the error is internal. */
export function reference(error: unknown): string {
  return info(error)?.reference || metadata(error, referenceHeader);
}

/**
 * Returns the id of the request that failed. Every line of the server's log about the request has it. It is empty if the
 * request did not reach the server.
 */
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
 * Reports whether calling again cannot help after an error. Codes about the request count only in an answer of the server,
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
