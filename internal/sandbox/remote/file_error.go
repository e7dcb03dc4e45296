package remote

import (
	"errors"
	"syscall"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// fileError explains why a file could not be read or written.
func fileError(reply protocol.Reply, r protocol.Request) error {
	done := "read"
	if r.Op == protocol.Place {
		done = "written"
	}
	var err *fault.Error
	switch errno := syscall.Errno(reply.Errno); {
	case reply.Reason == protocol.NotRegular:
		err = fault.Newf(fault.Invalid, "name a regular file", "%s is not a regular file", r.Path)
	case reply.Reason == protocol.Changed:
		err = fault.Newf(fault.Aborted, "read it again", "%s was replaced while it was read", r.Path)
	case errno == syscall.ENOSPC || errno == syscall.EDQUOT:
		err = fault.New(fault.Exhausted, "the sandbox's disk is full", "delete files in it, or use a larger one")
	case errno == syscall.ENOENT || errno == syscall.ENOTDIR || errno == syscall.ELOOP || errno == syscall.ENXIO || errno == syscall.EEXIST:
		err = fault.Newf(fault.Invalid, "check the path", "there is no file %s in the sandbox", r.Path)
	case errno == syscall.EISDIR:
		err = fault.Newf(fault.Invalid, "name a regular file", "%s is a directory in the sandbox", r.Path)
	case errno == syscall.EACCES || errno == syscall.EPERM || errno == syscall.EROFS || errno == syscall.EXDEV:
		err = fault.Newf(fault.Invalid, "choose a path below "+sandbox.Workspace+" or "+sandbox.Home, "%s cannot be %s by the sandbox's user", r.Path, done)
	default:
		err = fault.New(fault.Internal, "the sandbox could not do that", "try again, or replace the sandbox")
	}
	return err.Because(errors.New(string(reply.Reason) + ": " + reply.Detail))
}
