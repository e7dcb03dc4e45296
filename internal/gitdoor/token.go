package gitdoor

import (
	"context"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Sandboxes of some drivers ask the door over the network, so that a connection does not say which sandbox it is from. Git there
// shows a token that says so. The token opens nothing but this door, and what it opens is looked up for each request: a host
// that the environment of the sandbox has no credential for any more is refused, and so is every host once the sandbox is gone.

// TokenTTL is how long a token is valid. Whoever takes one out of a sandbox can use it for so long.
const TokenTTL = 2 * time.Hour

const tokenIssuer = "arbe git"

// Tokens makes and checks tokens. It is safe for concurrent use.
type Tokens struct{ key []byte }

// NewTokens returns tokens that a key signs. Servers with the same key accept each other's.
func NewTokens(key []byte) *Tokens { return &Tokens{key} }

// tokenClaims say which sandbox a token belongs to.
type tokenClaims struct {
	jwt.RegisteredClaims
	House   string `json:"house"`
	Sandbox string `json:"sandbox"`
}

// Make makes a token for a sandbox of a house.
func (t *Tokens) Make(house, sandbox string) (string, error) {
	now := time.Now()
	return jwt.NewWithClaims(jwt.SigningMethodHS256, tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: tokenIssuer, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(TokenTTL))},
		House:            house, Sandbox: sandbox,
	}).SignedString(t.key)
}

var tokenParser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(tokenIssuer), jwt.WithExpirationRequired())

// read returns the sandbox of a token.
func (t *Tokens) read(token string) (house, sandbox string, err error) {
	var c tokenClaims
	_, err = tokenParser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return t.key, nil })
	return c.House, c.Sandbox, err
}

// ServeToken answers a request that shows a token. Unless it is empty, only is the only house whose tokens are accepted. Git first
// asks without a token, to find out that it needs one.
func (d *Door) ServeToken(w http.ResponseWriter, r *http.Request, only string) {
	house, environment, err := d.identify(r.Context(), r)
	if err == nil && only != "" && house != only {
		err = fault.New(fault.Forbidden, "this is the token of a sandbox of another house", "use the sandbox's own")
	}
	if err != nil {
		if fault.CodeOf(err) == fault.Unauthenticated {
			w.Header().Set("WWW-Authenticate", `Basic realm="arbe"`)
		}
		d.refuse(w, r, err, fault.CodeOf(err).HTTPStatus())
		return
	}
	d.Serve(w, r, house, environment)
}

// identify returns the house and the environment of the sandbox whose token a request shows.
func (d *Door) identify(ctx context.Context, r *http.Request) (house, environment string, err error) {
	_, token, shown := r.BasicAuth()
	if !shown || d.config.Tokens == nil {
		return "", "", fault.New(fault.Unauthenticated, "only git in sandboxes may ask here", "use git in a sandbox whose environment has a credential for the host")
	}
	house, box, err := d.config.Tokens.read(token)
	if err != nil {
		return "", "", fault.New(fault.Unauthenticated, "the token of this sandbox is not valid any more", "run another command in the sandbox, which renews it").Because(err)
	}
	environment, err = d.config.Environment(ctx, house, box)
	return house, environment, err
}
