package gitdoor_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/gitdoor"
)

// The answers to git that shows a token of a sandbox. Without a valid one, git must be told that it needs one, or it would not ask
// its credential helper.
func TestATokenOpensTheDoorForItsSandboxUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := gitdoor.NewTokens([]byte("a key of 32 bytes, of this server"))
		var asked string
		config := gitdoor.Config{
			Tokens: tokens,
			Environment: func(_ context.Context, house, sandbox string) (string, error) {
				if sandbox == "gone" {
					return "", fault.New(fault.Forbidden, "the sandbox is gone", "use another")
				}
				return "environment of " + sandbox, nil
			},
			// The host is not asked, because the test ends here.
			Credential: func(_ context.Context, house, environment, host string) (gitdoor.Credential, error) {
				asked = house + ", " + environment + ", " + host
				return gitdoor.Credential{}, fault.New(fault.Precondition, "there is no secret", "set it")
			},
		}
		token := func(of *gitdoor.Tokens, house, sandbox string) string {
			t.Helper()
			made, err := of.Make(house, sandbox)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		good, gone := token(tokens, "house", "box"), token(tokens, "house", "gone")
		forged := token(gitdoor.NewTokens([]byte("a key of 32 bytes, of another one")), "house", "box")
		const passed = "house, environment of box, git.example.com"
		answers := func(what, shown, only string, status int, want string) {
			t.Helper()
			asked = ""
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/git/git.example.com/repo.git/info/refs?service=git-upload-pack", nil)
			if shown != "" {
				r.SetBasicAuth("arbe", shown)
			}
			w := httptest.NewRecorder()
			gitdoor.New(config).ServeToken(w, r, only)
			if w.Code != status || asked != want {
				t.Errorf("%s: it answers %d and asks for %q, want %d and %q", what, w.Code, asked, status, want)
			}
			if challenged := w.Header().Get("WWW-Authenticate") != ""; challenged != (status == http.StatusUnauthorized) {
				t.Errorf("%s: git is asked for a token: %v", what, challenged)
			}
		}
		refused := fault.Precondition.HTTPStatus()
		answers("a token", good, "", refused, passed)
		answers("a token of the house of the connection", good, "house", refused, passed)
		answers("a token of another house than the connection", good, "other", http.StatusForbidden, "")
		answers("none", "", "", http.StatusUnauthorized, "")
		answers("one that another key signed", forged, "", http.StatusUnauthorized, "")
		answers("one with another text for the same signature", respelled(good), "", http.StatusUnauthorized, "")
		answers("one of a sandbox that is gone", gone, "", http.StatusForbidden, "")
		time.Sleep(gitdoor.TokenTTL - time.Second)
		answers("one that is about to expire", good, "", refused, passed)
		time.Sleep(2 * time.Second)
		answers("one that has expired", good, "", http.StatusUnauthorized, "")
		config.Tokens = nil
		answers("a door without tokens", good, "", http.StatusUnauthorized, "")
	})
}

// respelled returns a token whose signature has another last character, which differs only in bits that base64 does not use.
func respelled(token string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + string(digits[strings.IndexByte(digits, token[last])|1])
}
