//go:build linux

package local

import (
	"regexp"
	"strings"
)

// failure is what the runtime wrote about why it failed.
type failure struct{ text string }

func (f *failure) Error() string { return f.text }

// reason is why a command could not be started.
type reason int

const (
	unknownReason reason = iota
	noDirectory
	noRoom
	tooLong
	notExecutable
	noProgram
)

// reason reads the runtime's words. They are the kernel's and the Go library's in the end, which makes
// them the same for all runtimes that are written in Go, and close in the others.
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
		return noRoom // the last three: the runtime's own process in the box was killed
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

// lastWords are what the runtime's process in the box writes when the very last step, turning into the
// command, fails: then the runtime has reported success already.
var lastWords = regexp.MustCompile(`^exec /.*: [a-z ]+\n$`)

// execFailed says whether what ended with code was not the command but the attempt to become it, and
// which exit code a shell would give that.
func (p *pipes) execFailed(code int) (shellCode int, failed bool) {
	stdout, stderr := p.outputs[0], p.outputs[1]
	if (code != 1 && code != 255) || stdout.total > 0 || stderr.total > len(stderr.head) || !lastWords.Match(stderr.head[:stderr.total]) {
		return 0, false
	}
	switch (&failure{string(stderr.head[:stderr.total])}).reason() {
	case notExecutable:
		return codeNotExecutable, true
	case noProgram:
		return codeNotFound, true
	default:
		return 0, false
	}
}
