package stream_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/stream"
)

// lossyProxy passes a Postgres connection on, and can cut one between a commit and its answer.
type lossyProxy struct {
	// url is where the database is, through the proxy.
	url string
	// nextCommit asks for the next commit to lose its answer; it is false again when one did.
	nextCommit atomic.Bool
	// meanwhile, when set, is called after that commit, before its connection breaks.
	meanwhile func()
}

// lossy is another log of the same database, which reaches it through a lossy proxy.
func (b *bench) lossy() (*stream.Log, *lossyProxy) {
	b.t.Helper()
	loses := startLossyProxy(b.t, b.ServerURL)
	d, err := db.Open(b.t.Context(), loses.url, db.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(d.Close)
	l, err := stream.Open(b.t.Context(), d, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(l.Close)
	return l, loses
}

func startLossyProxy(t testing.TB, databaseURL string) *lossyProxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	upstream := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	u.Host = listener.Addr().String()
	p := &lossyProxy{url: u.String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				continue
			}
			var cut atomic.Bool
			go pass(client, server, func(said []byte) bool {
				// Before it is passed on, so that the answer cannot be quicker.
				if bytes.Contains(said, []byte("commit")) && p.nextCommit.CompareAndSwap(true, false) {
					cut.Store(true)
				}
				return true
			})
			go pass(server, client, func([]byte) bool {
				if cut.Load() && p.meanwhile != nil {
					p.meanwhile()
				}
				return !cut.Load()
			})
		}
	}()
	return p
}

// pass copies from one to the other until one of them ends, or until it may not pass something on.
func pass(from, to net.Conn, may func(said []byte) bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !may(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
