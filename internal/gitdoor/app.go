package gitdoor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/internal/fault"
)

// A GitHub App has no token of its own. With its private key the door signs a short claim, for which GitHub gives a token that lives
// for an hour and opens the repositories where the App is installed. The door asks for a token for one repository, which may read or
// write its contents, as the request of git needs. A token is only in the memory of the server.

const (
	// claimLife is how long a claim of an App is valid. GitHub accepts at most ten minutes.
	claimLife = 9 * time.Minute
	// mostSkew is how much the clocks of the server and of GitHub may differ. A claim begins that much in the past.
	mostSkew = time.Minute
	// apiTimeout limits one request to the API.
	apiTimeout = 30 * time.Second
	// mostOfAPI limits an answer of the API, in bytes.
	mostOfAPI = 1 << 20
)

// tokenOf returns a token for a grant: one that the door has, or a new one.
func (d *Door) tokenOf(ctx context.Context, g grant, key string) (string, error) {
	return d.tokens.get(ctx, g, func() (token, error) {
		signer, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(key))
		if err != nil {
			// The cause may quote the key.
			return token{}, fault.Newf(fault.Precondition, "create a private key on the App's page at GitHub, and give the whole file to: arbe secret set NAME < FILE.pem",
				"the secret of the GitHub App %s is not an RSA private key in PEM form", g.app.ID)
		}
		t, err := d.newToken(ctx, g, signer)
		if err == nil && d.config.Redact != nil {
			d.config.Redact([]byte(t.value))
		}
		return t, err
	})
}

// newToken asks the API for a token.
func (d *Door) newToken(ctx context.Context, g grant, key *rsa.PrivateKey) (token, error) {
	now := d.config.Now()
	claim, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: g.app.ID, IssuedAt: jwt.NewNumericDate(now.Add(-mostSkew)), ExpiresAt: jwt.NewNumericDate(now.Add(claimLife)),
	}).SignedString(key)
	if err != nil {
		return token{}, fault.Newf(fault.Precondition, "create a new private key on the App's page at GitHub", "the private key of the GitHub App %s cannot sign", g.app.ID)
	}
	var installation struct {
		ID int64 `json:"id"`
	}
	if err := d.askAPI(ctx, g, claim, http.MethodGet, "/repos/"+g.owner+"/"+g.name+"/installation", nil, &installation); err != nil {
		return token{}, err
	}
	var made struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	wanted := map[string]any{"repositories": []string{g.name}, "permissions": map[string]string{"contents": g.access}}
	if err := d.askAPI(ctx, g, claim, http.MethodPost, fmt.Sprintf("/app/installations/%d/access_tokens", installation.ID), wanted, &made); err != nil {
		return token{}, err
	}
	if made.Token == "" || strings.ContainsAny(made.Token, "\r\n\x00") {
		return token{}, notGitHub(g)
	}
	return token{value: made.Token, expires: made.ExpiresAt}, nil
}

// askAPI makes one request to the API of a grant's App.
func (d *Door) askAPI(ctx context.Context, g grant, claim, method, path string, body, answer any) error {
	ctx, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	ask, err := g.apiRequest(ctx, claim, method, path, body)
	if err != nil {
		return err
	}
	got, err := d.api.Do(ask)
	if err != nil {
		return unreachable(ask.URL.Host, "https", err)
	}
	defer got.Body.Close()
	content, err := io.ReadAll(io.LimitReader(got.Body, mostOfAPI))
	if err != nil {
		return unreachable(ask.URL.Host, "https", err)
	}
	if got.StatusCode >= 300 {
		return d.refused(g, ask.URL.Host, method, got, content)
	}
	if json.Unmarshal(content, answer) != nil {
		return notGitHub(g)
	}
	return nil
}

// apiRequest returns a request to the API of the grant's App.
func (g grant) apiRequest(ctx context.Context, claim, method, path string, body any) (*http.Request, error) {
	at, err := g.app.api(g.host)
	if err != nil {
		return nil, fault.Newf(fault.Precondition, "correct github_api in: arbe env edit", "the API of the GitHub App %s has an address that is not a URL", g.app.ID)
	}
	at.Path += path
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(encoded)
	}
	ask, err := http.NewRequestWithContext(ctx, method, at.String(), text)
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Authorization", "Bearer "+claim)
	ask.Header.Set("Accept", "application/vnd.github+json")
	ask.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	ask.Header.Set("User-Agent", "arbe") // GitHub refuses requests without one
	return ask, nil
}

// refused is the error for a request that the API does not grant. A GET asks for the installation, a POST for a token.
func (d *Door) refused(g grant, api, method string, got *http.Response, content []byte) error {
	var s said
	var answer struct{ Message string }
	if json.Unmarshal(content, &answer) == nil {
		_, _ = s.Write([]byte(answer.Message)) // never fails
	}
	text := cmp.Or(s.String(), "it says nothing")
	repo := g.owner + "/" + g.name
	switch code := got.StatusCode; {
	case code == http.StatusUnauthorized:
		if theirs, err := http.ParseTime(got.Header.Get("Date")); err == nil {
			if skew := d.config.Now().Sub(theirs).Round(time.Second); skew.Abs() > mostSkew {
				return fault.Newf(fault.Precondition, "ask the operator to set the clock of this server, for example with NTP",
					"%s refuses the GitHub App %s, because the clock of this server differs from GitHub's by %v", api, g.app.ID, skew.Abs())
			}
		}
		return fault.Newf(fault.Forbidden, "check that the id and the private key are of the same App, and that the key was not deleted at GitHub", "%s refuses the GitHub App %s: %s", api, g.app.ID, text)
	case code == http.StatusNotFound && method == http.MethodGet:
		return fault.Newf(fault.Precondition, "install it on the repository (the App's page at GitHub, Install App), or correct the repository's address",
			"the GitHub App %s is not installed on %s, or there is no such repository", g.app.ID, repo)
	case code == http.StatusUnprocessableEntity:
		return fault.Newf(fault.Precondition, "give the App the repository permission Contents: "+g.access+", and accept the change where it is installed",
			"the GitHub App %s may not %s the contents of %s: %s", g.app.ID, g.access, repo, text)
	case code < 400:
		return fault.Newf(fault.Precondition, "use the repository's new address", "%s says that the repository %s is somewhere else", api, repo)
	case code == http.StatusTooManyRequests || code == http.StatusForbidden && got.Header.Get("X-RateLimit-Remaining") == "0" || got.Header.Get("Retry-After") != "":
		return fault.Newf(fault.Exhausted, "try again later", "%s has had too many requests of the GitHub App %s", api, g.app.ID)
	case code < 500:
		return fault.Newf(fault.Forbidden, "look at the App's installation at GitHub; it may be suspended", "%s gives the GitHub App %s no token for %s: %s", api, g.app.ID, repo, text)
	}
	return fault.Newf(fault.Unavailable, "try again later", "%s fails: %s", api, text)
}

func notGitHub(g grant) error {
	return fault.Newf(fault.Precondition, "correct github_api in: arbe env edit", "the API of the GitHub App %s does not answer as GitHub's does", g.app.ID)
}
