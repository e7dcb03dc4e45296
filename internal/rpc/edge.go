package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

const (
	// maxRequest bounds a request message, in bytes: the largest payload of an entry and its envelope.
	maxRequest = 5 << 20
	// maxDuration bounds a call that does not stream.
	maxDuration = 30 * time.Second
)

// The metadata of an error, beside its code and message.
const (
	// NextHeader carries what the caller can do about it.
	NextHeader = "Arbe-Next"
	// ReferenceHeader carries what the operator finds it by in the log.
	ReferenceHeader = "Arbe-Reference"
)

// correct is what to do about a request that is not understood.
const correct = "correct the request; the contract is in proto/arbe/v1"

// edge is what happens around every call: who asks, how long it may take, and how an error leaves.
type edge struct {
	auth   *auth.Auth
	logger *slog.Logger
}

// open are the procedures that need no credential.
var open = map[string]bool{arbev1connect.AgentServiceRedeemLoginLinkProcedure: true}

// WrapUnary wraps a call.
func (e *edge) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, maxDuration)
		defer cancel()
		understood(ctx)
		res, err := next(ctx, req)
		if err != nil {
			return nil, e.leave(err, req.Spec())
		}
		return res, nil
	}
}

// WrapStreamingHandler wraps a stream, which may last as long as it likes.
func (e *edge) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		understood(ctx)
		if err := next(ctx, conn); err != nil {
			return e.leave(err, conn.Spec())
		}
		return nil
	}
}

// WrapStreamingClient is for clients, which this is not.
func (e *edge) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// authenticate puts the caller into the context, or refuses the call. To end a session that has ended
// is no failure: that call goes on without a caller.
func (e *edge) authenticate(ctx context.Context, spec connect.Spec, _ connect.Peer, header http.Header) (context.Context, error) {
	if open[spec.Procedure] {
		return ctx, nil
	}
	p, err := e.caller(ctx, header) // a cookie from another site's page does not get here
	shown, _ := auth.Credential(header)
	switch {
	case err == nil:
		return p.With(ctx), nil
	case shown != "" && spec.Procedure == arbev1connect.AgentServiceEndSessionProcedure && fault.CodeOf(err) == fault.Unauthenticated:
		return ctx, nil
	}
	understood(ctx)
	return ctx, e.leave(err, spec)
}

// caller is who shows a credential.
func (e *edge) caller(ctx context.Context, header http.Header) (auth.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	return e.auth.Request(ctx, header)
}

// leave makes an error what the caller may see, and logs what they may not.
func (e *edge) leave(err error, spec connect.Spec) error {
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		// Said by connect or protovalidate, about the request: the message is for the caller.
		if coded.Meta().Get(NextHeader) == "" {
			coded.Meta().Set(NextHeader, correct)
		}
		return coded
	}
	f := fault.From(err)
	if db.State(err) == "22021" { // the one text that a message can carry and Postgres cannot
		f = fault.New(fault.Invalid, "a text of the request has a NUL byte", "remove the NUL byte").Because(err)
	}
	if f.Code == fault.Internal {
		e.logger.Error("a call failed", "procedure", spec.Procedure, "reference", f.Reference, "error", f.Detail())
	}
	return toWire(f)
}

// toWire is a fault as Connect sends it.
func toWire(f *fault.Error) *connect.Error {
	code := connect.CodeInternal
	if err := code.UnmarshalText([]byte(f.Code)); err != nil {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(f.Message))
	// Headers are one line of ASCII; what people wrote into a message's next step is neither for sure.
	err.Meta().Set(NextHeader, headerText(f.Next))
	if f.Reference != "" {
		err.Meta().Set(ReferenceHeader, f.Reference)
	}
	return err
}

// headerText keeps what a header may carry.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
}

// answerKey is the context's key of the header that the answer will have.
type answerKey struct{}

// sayNext gives the errors that connect answers by itself, before a call reaches the edge, a next step
// too: a body that is too large or cannot be decoded, a procedure that there is not.
func sayNext(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(NextHeader, correct)
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, w.Header())))
	})
}

// understood takes back what sayNext said: from here on an answer says by itself what to do next.
func understood(ctx context.Context) {
	if header, ok := ctx.Value(answerKey{}).(http.Header); ok {
		header.Del(NextHeader)
	}
}
