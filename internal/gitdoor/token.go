package gitdoor

import (
	"time"

	"github.com/golang-jwt/jwt/v5"
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

var tokenParser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(), jwt.WithIssuer(tokenIssuer), jwt.WithExpirationRequired())

// read returns the sandbox of a token.
func (t *Tokens) read(token string) (house, sandbox string, err error) {
	var c tokenClaims
	_, err = tokenParser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return t.key, nil })
	return c.House, c.Sandbox, err
}
