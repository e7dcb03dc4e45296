package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"github.com/arbe-dev/arbe/internal/outbound"
)

func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
		if strings.HasPrefix(r.Host, "forbidden.test") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\nhello\n") // the host speaks first, in the same packet
		_, _ = io.Copy(conn, conn)
	}))
	t.Cleanup(proxy.Close)
	direct := errors.New("direct")
	dial := throughProxy(&httpproxy.Config{HTTPSProxy: strings.Replace(proxy.URL, "http://", "http://ada:secret@", 1), NoProxy: "near.test"},
		func(context.Context, string, string) (net.Conn, error) { return nil, direct })

	conn, err := dial(t.Context(), "tcp", "far.test:22")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Errorf("the host said %q (%v)", line, err)
	}
	fmt.Fprintln(conn, "there")
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	if rest, err := io.ReadAll(r); string(rest) != "there\n" {
		t.Errorf("the host said %q (%v)", rest, err)
	}
	if _, err := dial(t.Context(), "tcp", "forbidden.test:443"); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a proxy that refuses: %v", err)
	}
	if _, err := dial(t.Context(), "tcp", "near.test:443"); !errors.Is(err, direct) {
		t.Errorf("a host that needs no proxy: %v", err)
	}
	if _, err := dial(t.Context(), "tcp", "10.0.0.1:443"); !isRefused(err) {
		t.Errorf("a private address: %v", err)
	}
	if want := "[CONNECT far.test:22 Basic YWRhOnNlY3JldA== CONNECT forbidden.test:443 Basic YWRhOnNlY3JldA==]"; fmt.Sprint(asked) != want {
		t.Errorf("the proxy was asked %v", asked)
	}
}

func isRefused(err error) bool {
	_, ok := errors.AsType[*outbound.RefusedError](err)
	return ok
}
