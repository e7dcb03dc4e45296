// Package gitdoortest has a double of GitHub for tests: its API for GitHub Apps, and repositories that git's own http-backend serves.
package gitdoortest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// AppID is the id of the one App that the double knows.
const AppID = "4711"

// TokenLife is how long a token lives.
const TokenLife = time.Minute

// GitHub is a GitHub Enterprise Server on loopback, whose API is at /api/v3. Its clock stands still until a test moves it.
type GitHub struct {
	*httptest.Server
	// Host is its host:port, and Root the directory of its bare repositories.
	Host, Root string
	// Key is the App's private key as GitHub gives it.
	Key string

	key *rsa.PrivateKey
	mu  sync.Mutex
	now time.Time
	// installed are the repositories (owner/name) on which the App is installed, and readOnly those whose contents it may only read.
	installed, readOnly map[string]bool
	tokens              map[string]Grant
	order               []string
	// instead, if set, answers requests of the API.
	instead http.HandlerFunc
	refused int
}

// Grant is what a token opens.
type Grant struct {
	Repositories []string
	Contents     string
	Expires      time.Time
}

// New starts a double with empty repositories (owner/name), on all of which the App is installed. It skips the test if the machine
// has no git http-backend.
func New(t testing.TB, repositories ...string) *GitHub {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	program := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, statErr := os.Stat(program); err != nil || statErr != nil {
		t.Skip("this machine has no git http-backend")
	}
	h := &GitHub{Root: t.TempDir(), now: time.Now().Truncate(time.Second), installed: map[string]bool{}, readOnly: map[string]bool{}, tokens: map[string]Grant{}}
	if h.key, err = key(); err != nil {
		t.Fatal(err)
	}
	h.Key = PEM(h.key)
	for _, name := range repositories {
		h.installed[name] = true
		bare := filepath.Join(h.Root, name+".git")
		for _, argv := range [][]string{
			{"git", "init", "--quiet", "--bare", "--initial-branch=main", bare},
			{"git", "-C", bare, "config", "http.receivepack", "true"},
		} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", argv, err, out)
			}
		}
	}
	git := &cgi.Handler{Path: program, Env: []string{"GIT_PROJECT_ROOT=" + h.Root, "GIT_HTTP_EXPORT_ALL=1"}, InheritEnv: []string{"PATH"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v3/repos/{owner}/{name}/installation", h.api(h.installation))
	mux.HandleFunc("POST /api/v3/app/installations/{id}/access_tokens", h.api(h.accessToken))
	mux.Handle("/", h.opened(git))
	h.Server = httptest.NewTLSServer(mux)
	t.Cleanup(h.Close)
	h.Host = strings.TrimPrefix(h.URL, "https://")
	return h
}

// key is the App's key, of all doubles, because a key takes long to make.
var key = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// PEM returns a key as GitHub gives it.
func PEM(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// Now returns the time of its clock.
func (h *GitHub) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Advance moves its clock.
func (h *GitHub) Advance(by time.Duration) { h.change(func() { h.now = h.now.Add(by) }) }

// Uninstall removes the App from a repository.
func (h *GitHub) Uninstall(repository string) { h.change(func() { delete(h.installed, repository) }) }

// ReadOnly lets the App only read a repository's contents.
func (h *GitHub) ReadOnly(repository string) { h.change(func() { h.readOnly[repository] = true }) }

// Revoke revokes all tokens.
func (h *GitHub) Revoke() { h.change(func() { clear(h.tokens) }) }

// Instead lets something else answer requests of the API; nil lets the double answer.
func (h *GitHub) Instead(answer http.HandlerFunc) { h.change(func() { h.instead = answer }) }

func (h *GitHub) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// Tokens returns all tokens that it has given, oldest first.
func (h *GitHub) Tokens() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.order)
}

// Grant returns what a token opens that was not revoked.
func (h *GitHub) Grant(token string) Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tokens[token]
}

// Refused returns how many requests of git had no valid token.
func (h *GitHub) Refused() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// api checks the claim of the App, as GitHub does.
func (h *GitHub) api(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		now, instead := h.now, h.instead
		h.mu.Unlock()
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if instead != nil {
			instead(w, r)
			return
		}
		var claim jwt.RegisteredClaims
		text := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		_, err := jwt.ParseWithClaims(text, &claim, func(*jwt.Token) (any, error) { return &h.key.PublicKey, nil },
			jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(AppID), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithTimeFunc(func() time.Time { return now }))
		switch {
		case err != nil:
			Say(w, http.StatusUnauthorized, "A JSON web token could not be decoded")
		case claim.ExpiresAt.After(now.Add(10 * time.Minute)):
			Say(w, http.StatusUnauthorized, "'Expiration time' claim ('exp') is too far in the future")
		case r.UserAgent() == "":
			Say(w, http.StatusForbidden, "Request forbidden by administrative rules")
		default:
			next(w, r)
		}
	}
}

// Say answers with an error as GitHub writes it.
func Say(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message}) // a failure has no other reader
}

// installationID is the id of the App's one installation.
const installationID = 99

func (h *GitHub) installation(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	installed := h.installed[r.PathValue("owner")+"/"+r.PathValue("name")]
	h.mu.Unlock()
	if !installed {
		Say(w, http.StatusNotFound, "Not Found")
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": installationID, "app_slug": "arbe"})
}

func (h *GitHub) accessToken(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Repositories []string
		Permissions  map[string]string
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || r.PathValue("id") != fmt.Sprint(installationID) {
		Say(w, http.StatusNotFound, "Not Found")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.readOnly {
		if slices.Contains(ask.Repositories, name[strings.Index(name, "/")+1:]) && ask.Permissions["contents"] != "read" {
			Say(w, http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
			return
		}
	}
	if len(ask.Repositories) == 0 || len(ask.Permissions) != 1 {
		Say(w, http.StatusTeapot, "this token would open more than one repository, or more than its contents")
		return
	}
	token := fmt.Sprintf("ghs_%s%d", rand.Text(), len(h.order))
	g := Grant{ask.Repositories, ask.Permissions["contents"], h.now.Add(TokenLife)}
	h.tokens[token], h.order = g, append(h.order, token)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_at": g.Expires.UTC().Format(time.RFC3339), "permissions": ask.Permissions, "repository_selection": "selected"})
}

// opened lets requests of git pass that have a token for their repository.
func (h *GitHub) opened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, token, _ := r.BasicAuth()
		h.mu.Lock()
		g, ok := h.tokens[token]
		ok = ok && user == "x-access-token" && h.now.Before(g.Expires)
		name := ""
		if parts := strings.Split(r.URL.Path, "/"); len(parts) > 2 {
			name = strings.TrimSuffix(parts[2], ".git")
		}
		ok = ok && slices.Contains(g.Repositories, name)
		if strings.Contains(r.URL.Path+r.URL.RawQuery, "git-receive-pack") {
			ok = ok && g.Contents == "write"
		}
		if !ok {
			h.refused++
		}
		h.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
