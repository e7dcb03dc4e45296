package port

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// ticketFor is how long the address of a preview can be opened, and passFor how long the preview can be seen after that.
	ticketFor, passFor = time.Minute, 12 * time.Hour
	// passKept is how long a browser keeps a pass. It is longer than passFor, because an expired pass still tells which
	// preview it was for.
	passKept = 7 * 24 * time.Hour
	// passCookie is the name of the cookie with a pass, without a prefix.
	passCookie = "arbe_preview"
)

// claims are the content of a ticket or a pass: the holder of a credential may see a port of a thread's sandbox. Neither is
// valid at another host or another door.
type claims struct {
	Thread string `json:"thread"`
	Port   uint16 `json:"port"`
	// Mark identifies the credential; see [auth.Principal.Mark].
	Mark []byte `json:"mark"`
	jwt.RegisteredClaims
}

// The kinds of signed texts. A ticket is part of an address. It expires soon and can be used once, as its id ensures. It is
// exchanged for a pass, which is in a cookie.
const (
	ticket = "preview ticket"
	pass   = "preview pass"
)

// sign returns the signed text of claims that are valid for this long.
func (p *Ports) sign(kind string, c claims, valid time.Duration) (text string, expires time.Time, err error) {
	expires = time.Now().Add(valid)
	c.RegisteredClaims = jwt.RegisteredClaims{ID: c.ID, Audience: jwt.ClaimStrings{kind}, ExpiresAt: jwt.NewNumericDate(expires)}
	text, err = jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(p.Key)
	return text, expires, err
}

// verify returns the claims of a text, if they are about the preview with a label. It returns expired claims together with an
// error.
func (p *Ports) verify(kind, text, label string) (claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return p.Key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(), jwt.WithAudience(kind), jwt.WithExpirationRequired())
	expired := errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid)
	if err != nil && !expired || kind == ticket && c.ID == "" || p.label(c.Thread, c.Port) != label {
		return claims{}, notOpened()
	}
	if expired {
		return c, notOpened()
	}
	return c, nil
}

func notOpened() error {
	return fault.New(fault.Unauthenticated, "this preview is not open in this browser", "open it from the page of its thread")
}

// label returns the first part of the host of a preview. It never changes, so that the browser keeps the data that a
// page stores there. It reveals nothing about the thread or the port.
func (p *Ports) label(thread string, port uint16) string {
	h := hmac.New(sha256.New, p.Key)
	fmt.Fprintf(h, "label of %s/%d", thread, port)
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:10]))
}

// cookieName returns the name of the cookie with a pass. With the prefix, which needs https, no other host can set the
// cookie.
func (p *Ports) cookieName() string {
	if p.secure() {
		return "__Host-" + passCookie
	}
	return passCookie
}

func (p *Ports) secure() bool { return p.Previews.Scheme == "https" }

// ours reports whether a cookie is arbe's. No program in a sandbox may see or set such a cookie.
func ours(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "__Host-"), "arbe_")
}

func (p *Ports) passCookie(text string) *http.Cookie {
	return &http.Cookie{
		Name: p.cookieName(), Value: text, Path: "/", MaxAge: int(passKept.Seconds()),
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}
