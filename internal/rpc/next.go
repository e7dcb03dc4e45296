package rpc

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Next steps often name a verb of the command line: "list the threads with: arbe thread list". The command line shows them to
// people as they are. The pages choose from them what a reader can do. Other programs get the steps without the verbs.

var (
	// verbAside matches a verb or a flag that a step also makes sense without.
	verbAside = lazyregexp.New(` with:? arbe [a-z][^,]*| \(arbe [a-z][^)]*\)|--[a-z-]+, or `)
	// verb matches a verb or a flag.
	verb = lazyregexp.New(`\barbe [a-z]|(^|\s)--[a-z]`)
)

// keepsVerbs reports whether a request is from a client that gets next steps with verbs.
func keepsVerbs(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), arbev1.CLIAgent+"/") || r.Header.Get(arbev1.PagesHeader) != ""
}

// nextFor returns the next step of a fault for the client of a call.
func nextFor(ctx context.Context, f *fault.Error) string {
	if a, ok := ctx.Value(answerKey{}).(answerTo); ok && a.verbs || !verb.MatchString(f.Next) {
		return f.Next
	}
	var steps []string
	for _, step := range strings.Split(f.Next, "; ") {
		if step = verbAside.ReplaceAllString(step, ""); !verb.MatchString(step) {
			steps = append(steps, step)
		}
	}
	if len(steps) > 0 {
		return strings.TrimPrefix(strings.Join(steps, "; "), "or ")
	}
	return instead(f.Code)
}

// instead returns the next step of a fault whose own steps all need the command line.
func instead(code fault.Code) string {
	switch {
	case code == fault.NotFound:
		return "list what exists, and name one of those"
	case code == fault.Unauthenticated:
		return "send a credential that is valid"
	case code == fault.Forbidden:
		return "use a credential that may do this, or ask an owner of the house"
	case slices.Contains([]fault.Code{fault.Invalid, fault.Unimplemented, fault.OutOfRange}, code):
		return correct
	}
	return "change what the message names, and try again"
}
