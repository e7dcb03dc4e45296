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
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/trace"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

const (
	// MaxRequest limits a request message, in bytes. It has room for the largest payload of an entry and the fields around
	// it.
	MaxRequest = 5 << 20
	// MaxStreamRequest limits the request message of a call that streams its answer, in bytes. It is smaller than MaxRequest,
	// because the server keeps the message in memory for the whole stream.
	MaxStreamRequest = 16 << 10
	// maxDuration limits a call that does not stream, so that calls that hang do not pile up.
	maxDuration = 30 * time.Second
)

// interceptor wraps every call: it authenticates the caller, limits the time of a call that does not stream, and
// converts errors.
type interceptor struct {
	auth   *auth.Auth
	logger *slog.Logger
	// observe is [Services.Observe].
	observe func(spec connect.Spec, code string, took time.Duration)
}

// observed passes a finished call to observe.
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

// public lists the procedures that need no credential.
var public = map[string]bool{
	arbev1connect.AgentServiceGetLoginLinkProcedure:     true,
	arbev1connect.AgentServiceRedeemLoginLinkProcedure:  true,
	arbev1connect.AgentServiceBeginDeviceLoginProcedure: true,
	arbev1connect.AgentServicePollDeviceLoginProcedure:  true,
	arbev1connect.HouseServiceGetInviteProcedure:        true,
}

// open lists the procedures that need no credential, and accept one: a person who is logged in accepts an invite, or connects an
// account of the login provider, as themselves.
var open = map[string]bool{
	arbev1connect.HouseServiceAcceptInviteProcedure:        true,
	arbev1connect.AgentServiceBeginProviderLoginProcedure:  true,
	arbev1connect.AgentServiceFinishProviderLoginProcedure: true,
}

// WrapUnary wraps a call that does not stream.
func (e *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, maxDuration)
		defer cancel()
		clearNext(ctx)
		began := time.Now()
		trace.Of(ctx).Name(strings.TrimPrefix(req.Spec().Procedure, "/"))
		res, err := next(ctx, req)
		if err != nil {
			err = e.convertError(ctx, err, req.Spec())
			res = nil
		}
		e.observed(req.Spec(), began, err)
		return res, err
	}
}

// WrapStreamingHandler wraps a call that streams. It has no time limit, because a tail lasts as long as its reader
// wants.
func (e *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		clearNext(ctx)
		began := time.Now()
		trace.Of(ctx).Name(strings.TrimPrefix(conn.Spec().Procedure, "/"))
		err := next(ctx, conn)
		if err != nil {
			err = e.convertError(ctx, err, conn.Spec())
		}
		e.observed(conn.Spec(), began, err)
		return err
	}
}

// WrapStreamingClient does nothing. [connect.Interceptor] requires it, but the services are not clients.
func (e *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// readRequest wraps a call that does not stream. It applies the mask of an update, and checks what the rules of the contract say
// only in numbers.
func (s Services) readRequest(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if update, ok := req.Any().(updateRequest); ok {
			if err := s.mask(ctx, update); err != nil {
				return nil, err
			}
		}
		if m, ok := req.Any().(proto.Message); ok {
			if err := checkEnums(m.ProtoReflect()); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

// authenticate puts the caller into the context, or refuses the call. EndSession with an ended session continues without a
// caller, so that logging out twice succeeds.
func (e *interceptor) authenticate(ctx context.Context, spec connect.Spec, _ connect.Peer, header http.Header) (context.Context, error) {
	began := time.Now()
	if public[spec.Procedure] {
		return ctx, nil
	}
	shown, _ := auth.Credential(header)
	if shown == "" && open[spec.Procedure] {
		return ctx, nil
	}
	p, err := e.caller(ctx, header) // refuses a cookie sent by another site's page
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

// caller returns the principal of the credential in a request's header.
func (e *interceptor) caller(ctx context.Context, header http.Header) (auth.Principal, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	return e.auth.Request(ctx, header)
}

// convertError turns an error into one that the caller may see. It logs the cause of an internal error, but does not
// return it, because the caller must not see it.
func (e *interceptor) convertError(ctx context.Context, err error, spec connect.Spec) error {
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		// The error comes from connect or protovalidate and is about the request, so its message is for the caller.
		if coded.Meta().Get(arbev1.NextHeader) == "" {
			addInfo(ctx, coded, fault.New(fault.Code(coded.Code().String()), "", correct))
		}
		return coded
	}
	f := faultOf(err)
	if f.Code == fault.Internal {
		e.logger.ErrorContext(ctx, "a call failed", "procedure", spec.Procedure, "reference", f.Reference, "error", f.Detail())
	}
	return WireError(ctx, f)
}

// faultOf returns an error as the caller may see it.
func faultOf(err error) *fault.Error {
	if db.State(err) == pgerrcode.CharacterNotInRepertoire { // a NUL byte is valid in a message, but Postgres cannot store it
		return fault.New(fault.Invalid, "a text of the request has a NUL byte", "remove the NUL byte").Because(err)
	}
	return fault.From(err)
}

// WireError returns a fault as Connect sends it.
func WireError(ctx context.Context, f *fault.Error) *connect.Error {
	code := connect.CodeInternal
	if err := code.UnmarshalText([]byte(f.Code)); err != nil {
		code = connect.CodeInternal
	}
	err := connect.NewError(code, errors.New(f.Message))
	addInfo(ctx, err, f)
	return err
}

// addInfo adds the parts of a fault other than its code and message to an error: as a detail, and as metadata for clients
// that read only the headers of an answer.
func addInfo(ctx context.Context, err *connect.Error, f *fault.Error) {
	info := &arbev1.ErrorInfo{
		Next: nextFor(ctx, f), Reference: f.Reference, RequestId: logging.Value(ctx, logging.RequestKey),
		Reason: string(f.Reason()), Domain: fault.Domain,
	}
	if detail, failed := connect.NewErrorDetail(info); failed == nil { // this message can always be encoded
		err.AddDetail(detail)
	}
	// A header must be one line of ASCII. The next step may contain other text, such as a name that a person chose.
	err.Meta().Set(arbev1.NextHeader, headerText(info.Next))
	err.Meta().Set(arbev1.ReasonHeader, info.Reason)
	if f.Reference != "" {
		err.Meta().Set(arbev1.ReferenceHeader, f.Reference)
	}
}

// headerText replaces characters that a header must not contain with spaces.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
}
