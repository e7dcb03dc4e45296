package gitdoor_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/gitdoor"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// TestThereIsNoLFS: the door asks no host for LFS, because the answer has a credential, often the request's own.
func TestThereIsNoLFS(t *testing.T) {
	t.Parallel()
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the host is asked: %s %s", r.Method, r.URL)
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"objects": []any{map[string]any{"actions": map[string]any{
			"download": map[string]any{"href": "https://" + r.Host + "/x", "header": map[string]string{"Authorization": r.Header.Get("Authorization")}},
		}}}})
	}))
	t.Cleanup(host.Close)
	authorities := x509.NewCertPool()
	authorities.AddCert(host.Certificate())
	_, key := newKey(t, "")
	for name, password := range map[string]string{"by https": "token", "by ssh": key} {
		d := gitdoor.New(gitdoor.Config{
			Credential: func(context.Context, string, string, string) (gitdoor.Credential, error) {
				return gitdoor.Credential{Password: password}, nil
			},
			Dial: new(net.Dialer).DialContext, Authorities: authorities, Logger: slog.New(slog.DiscardHandler),
		})
		for _, ask := range []struct{ method, path string }{
			{http.MethodPost, "repo.git/info/lfs/objects/batch"}, {http.MethodPost, "repo.git/info/lfs/locks/verify"}, {http.MethodGet, "repo.git/info/lfs/objects/0123"},
			{http.MethodPost, "repo.git/info/lfs/objects/batch?service=git-upload-pack"}, {http.MethodPost, "@root/repo.git/info/lfs/objects/batch"},
		} {
			w := httptest.NewRecorder()
			d.Serve(w, httptest.NewRequestWithContext(t.Context(), ask.method, "/git/"+host.Listener.Addr().String()+"/"+ask.path, strings.NewReader("{}")), "house", "environment")
			var said struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusNotFound || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/vnd.git-lfs+json") ||
				!strings.HasPrefix(said.Message, "arbe: LFS does not work") || !strings.Contains(said.Message, "GIT_LFS_SKIP_SMUDGE=1") {
				t.Errorf("%s: %s %s answers %d %s (%v)", name, ask.method, ask.path, w.Code, w.Body, err)
			}
		}
	}
}

// TestAHostThatIsNotReached: the addresses of the operator's network are not for members.
func TestAHostThatIsNotReached(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	_, key := newKey(t, "")
	fails := func(err error) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	private := &net.OpError{Op: "dial", Net: "tcp", Err: &outbound.RefusedError{Address: "10.1.2.3:443"}}
	proxy := errors.New("the proxy http://proxy.corp:3128 does not connect to 10.1.2.3:443")
	for name, of := range map[string]struct {
		password string
		dial     func(context.Context, string, string) (net.Conn, error)
		want     string
		log      string
	}{
		"a private address by https": {"token", fails(private), "arbe: git.example.com is not at a public address; ", "10.1.2.3:443 is not public"},
		"a private address by ssh":   {key, fails(private), "arbe: git.example.com is not at a public address; ", "10.1.2.3:443 is not public"},
		"a proxy by https":           {"token", fails(proxy), "arbe: git.example.com cannot be reached by https; ", "proxy.corp"},
		"a proxy by ssh":             {key, fails(proxy), "arbe: git.example.com cannot be reached by ssh; ", "proxy.corp"},
		"a certificate that nobody knows": {"token", func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, stranger.Listener.Addr().String())
		}, "arbe: git.example.com shows a certificate that this server does not trust; ", "x509"},
	} {
		var log strings.Builder
		d := gitdoor.New(gitdoor.Config{
			Credential: func(context.Context, string, string, string) (gitdoor.Credential, error) {
				return gitdoor.Credential{Password: of.password}, nil
			},
			Dial: of.dial, Authorities: x509.NewCertPool(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		w := httptest.NewRecorder()
		d.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/git/git.example.com/repo.git/info/refs?service=git-upload-pack", nil), "house", "environment")
		text, _ := io.ReadAll(w.Result().Body)
		if !strings.HasPrefix(string(text), of.want) {
			t.Errorf("%s: it answers %q", name, text)
		}
		for _, hidden := range []string{"10.", "127.", "proxy", "dial", "x509"} {
			if strings.Contains(string(text), hidden) {
				t.Errorf("%s: the answer has %q: %s", name, hidden, text)
			}
		}
		if !strings.Contains(log.String(), of.log) {
			t.Errorf("%s: the log lacks %q: %s", name, of.log, log.String())
		}
	}
}
