package rpc

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// keepsVerbs reports whether a request is from a client that gets next steps with verbs of the command line: the command
// line itself, or the pages, which choose the steps that a reader can take there.
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

// correct is the next step after a malformed request.
const correct = "correct the request; the contract is in proto/arbe/v1"

// answerKey is the context key of an [answerTo].
type answerKey struct{}

// answerTo describes the answer to a request.
type answerTo struct {
	header http.Header
	verbs  bool // its client gets next steps with verbs of the command line
}

// defaultNext gives a next step to errors that connect answers before a call reaches the interceptor: a body that is too
// large or cannot be decoded, and a procedure that does not exist.
func defaultNext(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(arbev1.NextHeader, correct)
		w.Header().Set("Cache-Control", "private, no-store") // the answer to a GET is for its caller only
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, answerTo{w.Header(), keepsVerbs(r)})))
	})
}

// clearNext removes the next step that defaultNext set, because every error that the interceptor converts has its own.
func clearNext(ctx context.Context) {
	if a, ok := ctx.Value(answerKey{}).(answerTo); ok {
		a.header.Del(arbev1.NextHeader)
	}
}
