package fault

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// Next steps often name a verb of the command line: "list the threads with: arbe thread list". The command line shows them to
// people as they are. Other programs get the steps without the verbs.

// commandLine begins the User-Agent of the command line.
const commandLine = "arbe-cli/"

var (
	// verbAside matches a verb or a flag that a step can do without.
	verbAside = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(` with:? arbe [a-z][^,]*| \(arbe [a-z][^)]*\)|--[a-z-]+, or `)
	})
	// verb matches a verb or a flag.
	verb = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\barbe [a-z]|(^|\s)--[a-z]`) })
)

// FromCommandLine reports whether a request is from the command line, which gets next steps with verbs.
func FromCommandLine(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), commandLine) }

// NextFor returns the next step for the client of a request. Programs get it without verbs of the command line.
func (e *Error) NextFor(r *http.Request) string {
	if FromCommandLine(r) {
		return e.Next
	}
	return e.NextWithoutVerbs()
}

// NextWithoutVerbs returns the next step without verbs of the command line. If all of its parts need a verb, it returns the
// general next step for the code.
func (e *Error) NextWithoutVerbs() string {
	if !verb().MatchString(e.Next) {
		return e.Next
	}
	var steps []string
	for step := range strings.SplitSeq(e.Next, "; ") {
		if step = verbAside().ReplaceAllString(step, ""); !verb().MatchString(step) {
			steps = append(steps, step)
		}
	}
	if len(steps) > 0 {
		return strings.TrimPrefix(strings.Join(steps, "; "), "or ")
	}
	return instead(e.Code)
}

// instead returns the next step after an error whose own steps all need the command line.
func instead(code Code) string {
	switch code {
	case NotFound:
		return "list what exists, and name one of those"
	case Unauthenticated:
		return "send a credential that is valid"
	case Forbidden:
		return "use a credential that may do this, or ask an owner of the house"
	case Invalid, Unimplemented, OutOfRange:
		return "correct the request"
	}
	return "change what the message names, and try again"
}
