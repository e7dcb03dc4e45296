//go:build linux

package local

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/local/supervisor"
)

// reason is why a command could not be started.
type reason int

const (
	unknownReason reason = iota
	noDirectory
	noRoom // it was killed or refused before it ran, so trying again may help
	tooLong
	notExecutable
	noProgram
)

// reasonOf returns why a command could not be started.
func reasonOf(err error) reason {
	if failed, ok := errors.AsType[*startFailure](err); ok {
		return failed.why
	}
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed.reason()
	}
	return unknownReason
}

// startFailure is the error of a supervised command that could not be started. Nothing of it has run.
type startFailure struct {
	why   reason
	cause error
}

func (f *startFailure) Error() string { return f.cause.Error() }
func (f *startFailure) Unwrap() error { return f.cause }

// stubReason returns why a stub did not become its command.
func stubReason(f supervisor.Failure) reason {
	errno := unix.Errno(f.Errno)
	switch {
	case errno == unix.EAGAIN || errno == unix.ENOMEM:
		return noRoom
	case f.Step == supervisor.StepDirectory:
		return noDirectory
	case f.Step != supervisor.StepProgram:
		return unknownReason
	case errno == unix.ENOENT || errno == unix.ENOTDIR:
		return noProgram
	case errno == unix.E2BIG:
		return tooLong
	default:
		return notExecutable
	}
}

// failure is the runtime's message about its failure.
type failure struct{ text string }

func (f *failure) Error() string { return f.text }

// reason interprets the text of gVisor's runtime; supervised commands report numbers instead. The text does not contain
// the program's name; see attach.
func (f *failure) reason() reason {
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(f.text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("chdir to cwd", "mkdir cwd", "initial working directory"):
		return noDirectory
	case has("resource temporarily unavailable", "cannot allocate memory", "oom", "OOM", "signal: killed", "connection reset", "EOF"):
		return noRoom // for the last three, the runtime's own process in the box was killed
	case has("argument list too long"):
		return tooLong
	case has("permission denied", "exec format error", "is a directory"):
		return notExecutable
	case has("executable file not found", "no such file", "not a directory"):
		return noProgram
	default:
		return unknownReason
	}
}

// noSpace reports whether an error means that a disk is full, also if a program reported it as text.
func noSpace(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || strings.Contains(fault.From(err).Detail(), "No space left on device"))
}

// diskFull returns the error for a full disk; nil for any other error.
func diskFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.New(fault.Exhausted, "the sandbox's disk is full", "delete files in it, or raise the environment's disk limit").Because(err)
	}
	return nil
}
