package auth

import (
	"context"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// The kinds of credential, in [Principal.Credential].
const (
	session     = "session"
	apiKey      = "api_key"
	threadToken = "thread_token"
)

// TokenTTL is how long a thread token is valid.
const TokenTTL = 2 * time.Hour

// The scopes of a thread token.
const (
	// StreamRead allows reading the thread and reading and following its log.
	StreamRead = "stream:read"
	// StreamWrite allows appending to the log.
	StreamWrite = "stream:write"
	// ModelCall allows calling models in the name of a run. Only the token of a run has it.
	ModelCall = "model:call"
)

// Scopes are the scopes that a thread token may be given.
var Scopes = []string{StreamRead, StreamWrite}

// runScopes are the scopes of a run's token.
var runScopes = []string{ModelCall, StreamRead, StreamWrite}

// Principal is the authenticated caller of a request.
type Principal struct {
	// Agent is the id of the person or bot.
	Agent string
	// Credential is the kind of credential shown: "session", "api_key" or "thread_token".
	Credential string
	// Key is the name of the API key shown; empty for other credentials. Browser reports that a browser showed its session, in a
	// cookie.
	Key     string
	Browser bool
	// CLI reports that the request says it comes from the command line of arbe.
	CLI bool
	// House is the one house that the credential is limited to; empty if it is not limited.
	House string
	// Thread is the one thread of that house that the credential is limited to, Scopes what it allows there, and
	// Expires when it ends. Only thread tokens set them.
	Thread  string
	Scopes  []string
	Expires time.Time
	// Run is the epoch of the run of that thread whose token was shown; 0 for every other credential.
	Run int64

	hash  []byte    // of the session or key shown
	token *claims   // the thread token shown
	role  string    // of the token's agent in House
	until time.Time // when the session or key expires; zero is never
}

// Via returns the kind of client that the caller uses.
func (p Principal) Via() entry.Via {
	switch {
	case p.Browser || p.Agent == "":
		return entry.Via{}
	case p.CLI:
		return entry.Via{Client: entry.ViaCLI}
	}
	return entry.Via{Client: entry.ViaAPI, Key: p.Key}
}

type principalKey struct{}

// With returns a context that carries p as its principal. Its transactions record p's credential.
func (p Principal) With(ctx context.Context) context.Context {
	via := "api"
	switch {
	case p.Thread != "":
		via = "token"
	case p.Browser:
		via = "browser"
	case p.CLI:
		via = "cli"
	}
	ctx = db.WithCredential(ctx, db.Credential{Agent: p.Agent, Via: via, Key: p.Key})
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the principal of a context. The error is a [fault.Unauthenticated] if nobody is logged in.
func PrincipalFrom(ctx context.Context) (Principal, error) {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p, nil
	}
	return Principal{}, notLoggedIn("nobody is logged in")
}

// Mark returns the text by which [Auth.Marked] identifies a session or an API key. It is not a credential: no door accepts
// it. It is nil for a thread token.
func (p Principal) Mark() []byte { return p.hash }

// Session returns the hash of the shown session, as the database stores it; nil if no session was shown.
func (p Principal) Session() []byte {
	if p.Credential != session {
		return nil
	}
	return p.hash
}

// claims are the contents of a token. Beside the registered claims they say where the token is valid, for what, and
// which facts must still be true.
type claims struct {
	jwt.RegisteredClaims
	House  string   `json:"house"`
	Thread string   `json:"thread"`
	Scopes []string `json:"scopes"`
	// Epoch is the thread's token epoch when the token was created. Joined is when the agent joined the house, in
	// microseconds.
	Epoch  int64 `json:"epoch"`
	Joined int64 `json:"joined"`
	// Maker is the owner who created the token for a bot. The token ends when the maker is no longer an owner. It is
	// empty if the holder created it.
	Maker string `json:"maker,omitempty"`
	// Run is the epoch of the run that the token belongs to; 0 for other tokens. The thread's token epoch changes when
	// a run ends, so no token outlasts its run.
	Run int64 `json:"run,omitempty"`

	keyID string // the id of the key that signed the token
}

// counts returns an error that says why a token with this status is no longer valid; nil if it is. The error for a run's
// token says that the run is over, so that its holder does not ask for another token.
func (c *claims) counts(status string) error {
	var why string
	switch status {
	case "ok":
		return nil
	case "unknown": // its signing key was deleted
		return ended("")
	case "deleted":
		why = "the thread was deleted"
	case "left":
		why = "its agent left the house"
	case "orphaned":
		why = "the owner who created it left the house, or is no longer an owner"
	case "revoked":
		why = "a member revoked it, or the thread has ended since"
	default:
		why = "the thread is " + status
	}
	if c.Run != 0 {
		return fault.Newf(fault.Forbidden, "stop the agent", "this run is over: the token of run %d of thread %q is no longer valid, because %s", c.Run, c.Thread, why).WithReason(fault.RunEnded)
	}
	return fault.Newf(fault.Unauthenticated, "ask for a new one when the thread runs again", "this token of thread %q is no longer valid: %s", c.Thread, why).WithReason(fault.TokenExpired)
}

func expired(thread string) error {
	return fault.Newf(fault.Unauthenticated, "ask for a new token; renew it before it expires, with RenewThreadToken or arbe token renew",
		"this token of thread %q has expired", thread).WithReason(fault.TokenExpired)
}

func notLoggedIn(what string) *fault.Error {
	return fault.New(fault.Unauthenticated, what, "get a new login link with: arbe login, or use an API key that is valid")
}

// ended returns the error for a session or key with this status; an empty status means that the credential is unknown.
func ended(status string) error {
	if status == "" {
		status = "not known"
	}
	return notLoggedIn("this credential is " + status)
}
