package gitdoor_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/gitdoor"
)

// TestThereIsNoLFS: a host's answer to LFS has a credential, often the request's own. So none is asked.
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
