package gitdoor_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/arbe-dev/arbe/internal/gitdoor"
)

// TestALargeRepositoryIsNotHeldInMemory: neither what a host sends nor what a sandbox pushes.
func TestALargeRepositoryIsNotHeldInMemory(t *testing.T) {
	// Not parallel: it looks at the memory of the process.
	const size, most = 256 << 20, 32 << 20
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		if n > 0 {
			_, _ = fmt.Fprint(w, n) // the test sees what is missing
			return
		}
		part := make([]byte, 64<<10)
		for sent := 0; sent < size; sent += len(part) {
			if _, err := w.Write(part); err != nil {
				t.Error(err)
				return
			}
		}
	}))
	t.Cleanup(host.Close)
	authorities := x509.NewCertPool()
	authorities.AddCert(host.Certificate())
	d := gitdoor.New(gitdoor.Config{
		Credential: func(context.Context, string, string, string) (gitdoor.Credential, error) {
			return gitdoor.Credential{Password: "token"}, nil
		},
		Dial: new(net.Dialer).DialContext, Authorities: authorities, Logger: slog.New(slog.DiscardHandler),
	})
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve(w, r, "house", "environment") }))
	t.Cleanup(door.Close)
	for name, of := range map[string]struct {
		method, end string
		body        io.Reader
		want        int64
	}{
		"a fetch": {http.MethodGet, "/info/refs?service=git-upload-pack", nil, size},
		"a push":  {http.MethodPost, "/git-receive-pack", io.LimitReader(zeros{}, size), int64(len(fmt.Sprint(size)))},
	} {
		req, err := http.NewRequestWithContext(t.Context(), of.method, door.URL+"/git/"+host.Listener.Addr().String()+"/repo.git"+of.end, of.body)
		must(t, err)
		before := allocated()
		answer, err := http.DefaultClient.Do(req)
		must(t, err)
		got, err := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil || got != of.want {
			t.Errorf("%s: the answer has %d bytes, want %d (%v)", name, got, of.want, err)
		}
		if took := allocated() - before; took > most {
			t.Errorf("%s of %d MiB takes %d MiB of memory", name, size>>20, took>>20)
		}
	}
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
