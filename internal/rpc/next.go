package rpc

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keepsVerbs reports whether a request is from a client that gets next steps with verbs of the command line: the command line
// itself, or the pages, which choose from them what a reader can do.
func keepsVerbs(r *http.Request) bool {
	return fault.FromCommandLine(r) || r.Header.Get(arbev1.PagesHeader) != ""
}

// nextFor returns the next step of a fault for the client of a call.
func nextFor(ctx context.Context, f *fault.Error) string {
	if a, ok := ctx.Value(answerKey{}).(answerTo); ok && a.verbs {
		return f.Next
	}
	return f.NextWithoutVerbs()
}
