package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgerrcode"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

const (
	// MaxRequest bounds a request message, in bytes: the largest payload of an entry and its envelope.
	MaxRequest = 5 << 20
	// MaxStreamRequest bounds that of a call that streams its answer, in bytes. The server holds it as long as it answers.
	MaxStreamRequest = 16 << 10
	// maxDuration bounds a call that does not stream.
	maxDuration = 30 * time.Second
)

// correct is what to do about a request that is not understood.
const correct = "correct the request; the contract is in proto/arbe/v1"

// interceptor is what happens around every call: who asks, how long it may take, and how an error leaves.
type interceptor struct {
	auth   *auth.Auth
	logger *slog.Logger
	// observe is [Services.Observe].
	observe func(spec connect.Spec, code string, took time.Duration)
}

// observed reports a call that has ended.
func (e *interceptor) observed(spec connect.Spec, began time.Time, err error) {
	if e.observe == nil {
		return
	}
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	e.observe(spec, code, time.Since(began))
}

// public are the procedures that need no credential.
var public = map[string]bool{
	arbev1connect.AgentServiceGetLoginLinkProcedure:    true,
	arbev1connect.AgentServiceRedeemLoginLinkProcedure: true,
	arbev1connect.HouseServiceGetInviteProcedure:       true,
}

// WrapUnary wraps a call.
func (e *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, maxDuration)
		defer cancel()
		clearNext(ctx)
		began := time.Now()
		res, err := next(ctx, req)
		if err != nil {
			err = e.convertError(ctx, err, req.Spec())
			res = nil
		}
		e.observed(req.Spec(), began, err)
		return res, err
	}
}

// WrapStreamingHandler wraps a stream, which may last as long as it likes.
func (e *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		clearNext(ctx)
		began := time.Now()
		err := next(ctx, conn)
		if err != nil {
			err = e.convertError(ctx, err, conn.Spec())
		}
		e.observed(conn.Spec(), began, err)
		return err
	}
}

// WrapStreamingClient is for clients, which this is not.
func (e *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// authenticate puts the caller into the context, or refuses the call. To end a session that has ended
// is no failure: that call goes on without a caller.
func (e *interceptor) authenticate(ctx context.Context, spec connect.Spec, _ connect.Peer, header http.Header) (context.Context, error) {
	began := time.Now()
	if public[spec.Procedure] {
		return ctx, nil
	}
	shown, _ := auth.Credential(header)
	if shown == "" && spec.Procedure == arbev1connect.HouseServiceAcceptInviteProcedure {
		return ctx, nil // a new person
	}
	p, err := e.caller(ctx, header) // a cookie from another site's page does not get here
	switch {
	case err == nil:
		return p.With(ctx), nil
	case shown != "" && spec.Procedure == arbev1connect.AgentServiceEndSessionProcedure && fault.CodeOf(err) == fault.Unauthenticated:
		return ctx, nil
	}
	clearNext(ctx)
	err = e.convertError(ctx, err, spec)
	e.observed(spec, began, err)
	return ctx, err
}

// caller is who shows a credential.
func (e *interceptor) caller(ctx context.Context, header http.Header) (auth.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	return e.auth.Request(ctx, header)
}

// convertError makes an error what the caller may see, and logs what they may not.
func (e *interceptor) convertError(ctx context.Context, err error, spec connect.Spec) error {
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		// Said by connect or protovalidate, about the request: the message is for the caller.
		if coded.Meta().Get(arbev1.NextHeader) == "" {
			addInfo(ctx, coded, correct, "")
		}
		return coded
	}
	f := faultOf(err)
	if f.Code == fault.Internal {
		e.logger.ErrorContext(ctx, "a call failed", "procedure", spec.Procedure, "reference", f.Reference, "error", f.Detail())
	}
	return WireError(ctx, f)
}

// faultOf is an error as a caller may see it.
func faultOf(err error) *fault.Error {
	if db.State(err) == pgerrcode.CharacterNotInRepertoire { // the one text that a message can carry and Postgres cannot
		return fault.New(fault.Invalid, "a text of the request has a NUL byte", "remove the NUL byte").Because(err)
	}
	return fault.From(err)
}

// WireError is a fault as Connect sends it.
func WireError(ctx context.Context, f *fault.Error) *connect.Error {
	code := connect.CodeInternal
	if err := code.UnmarshalText([]byte(f.Code)); err != nil {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(f.Message))
	addInfo(ctx, err, f.Next, f.Reference)
	return err
}

// addInfo adds to an error what there is to do about it, and by what the operator finds it: as a detail, and as metadata
// for whoever looks at an answer's headers alone.
func addInfo(ctx context.Context, err *connect.Error, next, reference string) {
	info := &arbev1.ErrorInfo{Next: next, Reference: reference, RequestId: logging.Value(ctx, logging.RequestKey)}
	if detail, failed := connect.NewErrorDetail(info); failed == nil { // it always can be encoded
		err.AddDetail(detail)
	}
	// Headers are one line of ASCII; what people wrote into a message's next step is neither for sure.
	err.Meta().Set(arbev1.NextHeader, headerText(next))
	if reference != "" {
		err.Meta().Set(arbev1.ReferenceHeader, reference)
	}
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

// defaultNext gives the errors that connect answers by itself, before a call reaches the edge, a next step
// too: a body that is too large or cannot be decoded, a procedure that there is not.
func defaultNext(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(arbev1.NextHeader, correct)
		w.Header().Set("Cache-Control", "private, no-store") // a GET's answer is for its caller alone
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, w.Header())))
	})
}

// clearNext removes what defaultNext set: from here on each answer sets its own next step.
func clearNext(ctx context.Context) {
	if header, ok := ctx.Value(answerKey{}).(http.Header); ok {
		header.Del(arbev1.NextHeader)
	}
}
