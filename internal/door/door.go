// Package door is the stream door: the Durable Streams HTTP protocol over the log.
//
// It serves any stream of a house by its name, under two prefixes that mean the same (/api/stream/ and
// /v1/stream/): PUT creates, POST appends and closes, GET reads and follows, HEAD describes, DELETE deletes.
// Clients name and fill streams of their own as they like; a thread's stream ("arbe-thread-" and the
// thread's id) is there because its thread is, takes only entries of known kinds (thread.go), and goes
// with it.
//
// How it is laid out: this file routes and answers errors; create.go, write.go, read.go and sse.go are the
// operations, feed.go tells followers, takeover.go is what they are told over, and subscription.go what is the
// protocol's own; offset.go and headers.go are what it writes into headers. What the protocol asks of the log
// itself, above all that things happen together, is in [stream.Log]: nothing here decides twice.
//
// The rule to remember: an offset is the position of the last entry before it, so an offset that was
// handed out stays valid for ever, in the stream and in all its forks.
package door

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

const (
	// maxBody bounds a request's body, in bytes.
	maxBody = 16 << 20
	// maxDuration bounds what is no live read.
	maxDuration = 30 * time.Second
	// maxName bounds the name of a stream, in bytes.
	maxName = 255
)

// Prefixes are the paths that streams are under.
var Prefixes = []string{"/api/stream/", "/v1/stream/"}

// Authorize says with whose eyes a request looks at the stream of this name, or why it may not.
type Authorize func(r *http.Request, action auth.Action, name string) (Pass, error)

// Pass is what a request looks with.
type Pass struct {
	db.Scope
	// While bounds what goes on for long, past the request too: its context ends when the request would not be
	// let in any more, as that of [auth.Auth.While] does. Defaults to nil: it would always be.
	While func(context.Context) (context.Context, context.CancelFunc)
}

// Config is what a [Door] works with.
type Config struct {
	Log       *stream.Log
	Authorize Authorize
	// Subscriptions wake who works on streams. Defaults to nil, none.
	Subscriptions *subscription.Subscriptions
	Logger        *slog.Logger
	// LongPoll is how long a long-poll waits. Defaults to 30 seconds.
	LongPoll time.Duration
}

// Door is an [http.Handler] of the paths under [Prefixes].
type Door struct {
	Config
	feeds feeds
	taken taken
}

// New makes a Door.
func New(c Config) *Door {
	if c.LongPoll == 0 {
		c.LongPoll = 30 * time.Second
	}
	return &Door{Config: c}
}

// request is a request for one stream by someone who may make it.
type request struct {
	*http.Request
	ref   stream.Ref
	agent string
	// thread says that it is a thread's stream.
	thread bool
	// while is [Pass.While].
	while func(context.Context) (context.Context, context.CancelFunc)
}

// operation answers a request; an error is answered for it.
type operation func(d *Door, w http.ResponseWriter, r request) error

// operations are what can be done to a stream.
var operations = map[string]struct {
	action auth.Action
	do     operation
}{
	http.MethodPut:    {auth.Write, (*Door).create},
	http.MethodPost:   {auth.Say, (*Door).write},
	http.MethodGet:    {auth.Read, (*Door).read},
	http.MethodHead:   {auth.Read, (*Door).head},
	http.MethodDelete: {auth.Write, (*Door).delete},
}

// ServeHTTP answers a request for a stream.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	openToAll(w.Header())
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := d.serve(w, r); err != nil {
		d.fail(w, r, err)
	}
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request) error {
	name, err := streamName(r.URL.Path)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, reserved) {
		ctx, cancel := context.WithTimeout(r.Context(), maxDuration)
		defer cancel()
		return d.control(w, r.WithContext(ctx), name)
	}
	op, ok := operations[r.Method]
	if !ok {
		w.Header().Set("Allow", methods)
		return refusal{http.StatusMethodNotAllowed, fault.Newf(fault.Unimplemented, "use one of "+methods, "a stream knows no %.20s", r.Method)}
	}
	pass, err := d.authorize(r, op.action, name)
	if err != nil {
		return err
	}
	_, thread := threadOf(name)
	req := request{r, stream.Ref{House: pass.House, Name: name}, pass.Agent, thread, pass.While}
	if r.Method != http.MethodGet || !r.URL.Query().Has("live") {
		ctx, done := context.WithTimeout(r.Context(), maxDuration)
		defer done()
		req.Request = r.WithContext(ctx)
	}
	return op.do(d, w, req)
}

// authorize is Authorize in bounded time, also for who wants to follow for long.
func (d *Door) authorize(r *http.Request, action auth.Action, name string) (Pass, error) {
	ctx, cancel := context.WithTimeout(r.Context(), maxDuration)
	defer cancel()
	pass, err := d.Authorize(r.WithContext(ctx), action, name)
	if pass.While == nil {
		pass.While = context.WithCancel
	}
	return pass, err
}

// nameForm is what a stream may be called: a path of words.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9._~:@-]+(/[A-Za-z0-9._~:@-]+)*$`)

// streamName is the name of the stream that a path, or the end of a URL, leads to.
func streamName(path string) (string, error) {
	name := path
	for _, prefix := range Prefixes {
		// Whatever comes before the prefix is of a proxy.
		if _, after, ok := strings.Cut(path, prefix); ok {
			name = after
			break
		}
	}
	switch {
	case len(name) > maxName:
		return "", fault.Newf(fault.Invalid, "shorten it", "the name of a stream has at most %d bytes", maxName)
	case !nameForm.MatchString(name), strings.Contains("/"+name+"/", "/../"), strings.Contains("/"+name+"/", "/./"):
		return "", fault.New(fault.Invalid, "this is no name of a stream", "use letters, digits and . _ ~ : @ -, with / between words")
	}
	return name, nil
}

// refusal is an error whose status its code does not tell.
type refusal struct {
	status int
	error
}

func (r refusal) Unwrap() error { return r.error }

// status is what an error is answered with.
func status(err error, f *fault.Error) int {
	var r refusal
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.Is(err, stream.ErrGone):
		return http.StatusGone
	case f.Code == fault.Precondition: // the protocol has another use for 412
		return http.StatusConflict
	case f.Code == fault.OutOfRange:
		return http.StatusBadRequest
	}
	return f.Code.HTTPStatus()
}

// fail answers an error.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.From(err)
	if f.Code == fault.Internal {
		d.Logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "reference", f.Reference, "error", f.Detail())
	}
	code := status(err, f)
	told := failureOf(f)
	protocolCode(&told, &code, err)
	refuse(w, r, code, told)
}

// refuse writes an error.
func refuse(w http.ResponseWriter, r *http.Request, code int, told failure) {
	text, _ := json.Marshal(map[string]any{"error": told})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Del("ETag")
	switch fault.Code(told.Code) {
	case fault.Unauthenticated:
		h.Set("WWW-Authenticate", "Bearer")
	case fault.Unavailable:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		w.Write(text)
	}
}

func failureOf(f *fault.Error) failure {
	return failure{Code: string(f.Code), Message: f.Message, Next: f.Next, Reference: f.Reference}
}

// failure is an error as clients read it.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Next      string `json:"next,omitempty"`
	Reference string `json:"reference,omitempty"`

	Holder     string `json:"current_holder,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}
