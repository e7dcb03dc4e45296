// Package door is the stream door: the Durable Streams HTTP protocol over the log.
//
// It serves any stream of a house by its name under two equivalent prefixes (/api/stream/ and /v1/stream/): PUT
// creates, POST appends and closes, GET reads and follows, HEAD describes, DELETE deletes. Clients create their own
// streams and choose the names. A thread's stream ("arbe-thread-" and the thread's id) exists as long as its thread and
// accepts only entries of known kinds (thread.go). A chat posted to it is handled like any chat in the thread: "!make
// test" runs a command if its author may run commands, unless it is posted as literal; "/shrug", which is not a
// command, is then refused.
//
// serve.go routes requests and answers errors. authorize.go decides who may do what. create.go, write.go, read.go and sse.go
// are the operations, and thread.go has the special rules for threads' streams. page.go and body.go build the response of a
// read. feed.go sends events (event.go) to followers, over connections that takeover.go takes from the HTTP server.
// subscription.go serves subscriptions. offset.go and headers.go parse and write the protocol's offsets and headers, hold.go
// limits the memory that clients occupy, and proxy.go forwards requests for sandboxes. Everything that must be atomic is in
// [stream.Log].
//
// The rule to remember: an offset is the position of the last entry before it. It therefore stays valid forever, in the
// stream and in all its forks.
package door

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/subscription"
)

const (
	// maxBody limits the body of a request, in bytes.
	maxBody = 16 << 20
	// maxDuration limits everything but reads, because those are limited by other means: the database answers in
	// bounded time, and the client must receive the answer at a minimum rate.
	maxDuration = 30 * time.Second
	// maxName limits the name of a stream, in bytes.
	maxName = 255
)

// Prefixes are the path prefixes of streams.
var Prefixes = []string{"/api/stream/", "/v1/stream/"}

// Authorize decides whether a request may do action to the stream of this name. It returns the pass to do it with, or
// an error.
type Authorize func(r *http.Request, action auth.Action, name string) (Pass, error)

// Pass is the permission of a request.
type Pass struct {
	db.Scope
	// While returns a context that ends when the request would no longer be allowed, for work that may outlast it, like
	// [auth.Auth.While]. Defaults to nil: the permission does not end.
	While func(context.Context) (context.Context, context.CancelFunc)
	// MayRun is the MayRun of [dispatch.Speaker] for the stream's thread.
	MayRun func(context.Context) error
	// Confined is the Confined of [dispatch.Speaker].
	Confined bool
	// Run is the epoch of the run whose token the request carries; 0 for every other credential. Renewed is a new token
	// of that run, once the old one is due for renewal.
	Run     int64
	Renewed string
}

// who identifies the member of a house who has the pass.
func (p Pass) who() string { return p.House + "/" + p.Agent }

// Config configures a [Door].
type Config struct {
	Log       *stream.Log
	Authorize Authorize
	// Dispatcher handles chats and commands posted to threads. Defaults to nil: entries are written unchanged.
	Dispatcher *dispatch.Dispatcher
	// Subscriptions serves subscriptions. Defaults to nil: there are none.
	Subscriptions *subscription.Subscriptions
	Logger        *slog.Logger
	// LongPoll is how long a long-poll waits. Defaults to [DefaultLongPoll].
	LongPoll time.Duration
	// TagKey is the secret of entity tags. Servers that share it understand each other's conditional requests. Defaults
	// to a random key.
	TagKey []byte
	// Memory limits what the server holds for clients: pages that they have not received yet, events and bodies.
	// Defaults to 256 MiB, and a quarter of it for each member of a house.
	Memory *httpd.Memory
	// MemoryWait is how long a request waits for memory. Defaults to 20 seconds.
	MemoryWait time.Duration
	// MaxFollowers limits the connections with which each member of a house follows streams. Defaults to 16,384.
	MaxFollowers int
}

// DefaultLongPoll is how long a long-poll waits.
const DefaultLongPoll = 30 * time.Second

// Door is an [http.Handler] for the paths under [Prefixes].
type Door struct {
	Config
	memory clientMemory
	feeds  *feeds
	taken  taken
	// followers counts the connections that follow streams, by member.
	followers httpd.Crowd
}

// New returns a Door.
func New(c Config) *Door {
	if c.LongPoll == 0 {
		c.LongPoll = DefaultLongPoll
	}
	if c.TagKey == nil {
		c.TagKey = []byte(rand.Text())
	}
	if c.Memory == nil {
		c.Memory = httpd.NewMemory(256<<20, 64<<20)
	}
	if c.MemoryWait == 0 {
		c.MemoryWait = 20 * time.Second
	}
	if c.MaxFollowers == 0 {
		c.MaxFollowers = 16 << 10
	}
	memory := clientMemory{c.Memory, c.MemoryWait}
	return &Door{Config: c, memory: memory, feeds: &feeds{log: c.Log, memory: memory, logger: c.Logger, shared: map[feedKey]*feed{}}}
}

// Close waits until all HTTP/1 followers have ended, which they do once the Log closes; the HTTP server's shutdown does
// not wait for them. When ctx ends, it closes the remaining connections and returns ctx's error. No new followers are
// accepted.
func (d *Door) Close(ctx context.Context) error {
	t := &d.taken
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	none := make(chan struct{})
	go func() { t.all.Wait(); close(none) }()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		conn.Close()
	}
	return ctx.Err()
}

// request is an authorized request for one stream.
type request struct {
	*http.Request
	ref   stream.Ref
	agent string
	// member is the member of a house who makes it.
	member string
	// thread reports that the stream is a thread's.
	thread bool
	// watch is [Pass.While].
	watch func(context.Context) (context.Context, context.CancelFunc)
	// mayRun is [Pass.MayRun].
	mayRun func(context.Context) error
	// confined is [Pass.Confined], and run [Pass.Run].
	confined bool
	run      int64
}

// reserved is the start of the names that belong to the protocol.
const reserved = "__ds/"

// A name is a path of words.
var (
	wordForm = lazyregexp.New(`^[A-Za-z0-9._~:@-]+$`)
	nameForm = lazyregexp.New(`^[A-Za-z0-9._~:@-]+(/[A-Za-z0-9._~:@-]+)*$`)
)

// checkName returns an error if no stream may have this name.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fault.Newf(fault.Invalid, "shorten it", "the name of a stream has at most %d bytes", maxName)
	case !nameForm.MatchString(name), strings.Contains("/"+name+"/", "/../"), strings.Contains("/"+name+"/", "/./"):
		return fault.New(fault.Invalid, "this is not a name for a stream", "use letters, digits and . _ ~ : @ -, with / between words")
	}
	return nil
}

// pathName returns the name of the stream at a path, which must be escaped as it was sent. The path must begin with one
// of [Prefixes]. A word that hides a slash or dots by escaping is refused, so that a proxy in front of the door cannot
// read the path differently from the door. A reverse proxy that serves the door under its own path must strip that
// path.
func pathName(path string) (name string, err error) {
	for _, prefix := range Prefixes {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		words := strings.Split(rest, "/")
		for i, word := range words {
			plain, err := url.PathUnescape(word)
			// The protocol puts the name of a subscription's stream into one word at the end of the path.
			linked := i == 4 && len(words) == 5 && words[0]+"/" == reserved && words[3] == "streams"
			if err != nil || !linked && !wordForm.MatchString(plain) {
				return "", checkName("")
			}
			words[i] = plain
		}
		name = strings.Join(words, "/")
		return name, checkName(name)
	}
	return "", fault.New(fault.Invalid, "the path does not lead to a stream", "streams are under "+Prefixes[0])
}

// streamName returns the name of the stream to which a header or body refers, by name or by path.
func streamName(given string) (string, error) {
	if strings.HasPrefix(given, "/") {
		return pathName(given)
	}
	return given, checkName(given)
}

// Serves reports whether a request is for the door: whether its path, as sent, begins with one of [Prefixes].
func Serves(r *http.Request) bool { return prefixOf(r) != "" }

// prefixOf returns the one of [Prefixes] with which a request's path begins, or "".
func prefixOf(r *http.Request) string {
	path := r.URL.EscapedPath()
	for _, prefix := range Prefixes {
		if strings.HasPrefix(path, prefix) {
			return prefix
		}
	}
	return ""
}

// refusal is an error with an HTTP status that does not follow from its code.
type refusal struct {
	status int
	error
}

func (r refusal) Unwrap() error { return r.error }

// status returns the HTTP status for an error.
func status(err error, f *fault.Error) int {
	var r refusal
	switch {
	case errors.As(err, &r):
		return r.status
	case errors.Is(err, stream.ErrGone):
		return http.StatusGone
	case f.Code == fault.Precondition: // because the protocol uses 412 for something else
		return http.StatusConflict
	case f.Code == fault.OutOfRange:
		return http.StatusBadRequest
	case f.Reason() == fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return f.Code.HTTPStatus()
}

// failure is the JSON form of an error. Some errors about subscriptions have codes of the protocol and further fields.
type failure struct {
	fault.Body
	Holder     string `json:"current_holder,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}
