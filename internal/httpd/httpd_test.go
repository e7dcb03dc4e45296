package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/httpd"
)

// stall is long enough for a busy machine to read available data.
const stall = time.Second

// lenient is a limit for tests in which no client may count as stalled, because the machine may pause for long.
const lenient = 8 * time.Second

// soon is far longer than a stall, but finite.
const soon = time.Minute

// serve serves a handler. It returns the address, and a function that waits until no request is being handled.
func serve(t *testing.T, l httpd.Limits, h http.HandlerFunc) (address string, idle func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var handled sync.WaitGroup
	if l.Stall == 0 {
		l.Stall = stall
	}
	server := httpd.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		defer handled.Done()
		h(w, r)
	}), l, slog.New(slog.DiscardHandler))
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String(), func() {
		t.Helper()
		done := make(chan struct{})
		go func() { handled.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(soon):
			t.Error("a handler still waits for its client")
		}
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(soon))
	return conn
}

// transport speaks one version of HTTP.
func transport(t *testing.T, version int) *http.Transport {
	c := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	c.Protocols.SetHTTP1(version == 1)
	c.Protocols.SetUnencryptedHTTP2(version == 2)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// slow is a body that sends one byte and then nothing.
func slow(t *testing.T) io.Reader {
	out, in := io.Pipe()
	go in.Write([]byte("x"))
	t.Cleanup(func() { in.Close() })
	return out
}

// handlers are handlers by what they do with a body.
var handlers = map[string]http.HandlerFunc{
	"reads the body":  func(w http.ResponseWriter, r *http.Request) { _, err := io.ReadAll(r.Body); failOn(w, err) },
	"answers first":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusUnauthorized) },
	"closes the body": func(w http.ResponseWriter, r *http.Request) { r.Body.Close(); failOn(w, errors.New("no")) },
	"answers and closes the body": func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no", http.StatusUnauthorized)
		r.Body.Close()
	},
	"says nothing":            func(http.ResponseWriter, *http.Request) {},
	"answers in parts":        func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "a"); w.(http.Flusher).Flush() },
	"answers without content": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
}

func failOn(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestTimeout)
	}
}

func TestABodyThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	for name, handler := range handlers {
		for _, header := range []string{"Content-Length: 1000", "Content-Length: 10000000", "Transfer-Encoding: chunked"} {
			t.Run(name+", HTTP/1, "+header, func(t *testing.T) {
				t.Parallel()
				address, idle := serve(t, httpd.Limits{}, handler)
				conn := dial(t, address)
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", header)
				answer, err := io.ReadAll(conn) // until the server closes it
				if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
					t.Error("the connection is still open")
				}
				if !bytes.HasPrefix(answer, []byte("HTTP/1.1 ")) {
					t.Errorf("it answers %q", answer)
				}
				idle()
			})
		}
		t.Run(name+", HTTP/2", func(t *testing.T) {
			t.Parallel()
			address, idle := serve(t, httpd.Limits{}, handler)
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address, slow(t))
			if err != nil {
				t.Fatal(err)
			}
			if res, err := transport(t, 2).RoundTrip(req); err == nil {
				io.ReadAll(res.Body)
				res.Body.Close()
			}
			idle()
		})
	}
}

func TestABodyThatDrips(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			address, idle := serve(t, httpd.Limits{Rate: 1 << 20}, handlers["reads the body"])
			out, in := io.Pipe()
			defer in.Close()
			go func() { // each byte within a stall, but far too slow in all
				for tick := time.NewTicker(stall / 6); ; <-tick.C {
					if _, err := in.Write([]byte("x")); err != nil {
						return
					}
				}
			}()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+address, out)
			res, err := transport(t, version).RoundTrip(req)
			if err == nil {
				defer res.Body.Close()
				if res.StatusCode != http.StatusRequestTimeout {
					t.Errorf("it answers %s", res.Status)
				}
			}
			idle()
			if took := time.Since(began); took > soon {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestABodyThatArrives(t *testing.T) {
	t.Parallel()
	const parts, each = 6, 100 << 10
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("is read, however long it takes, HTTP/", version), func(t *testing.T) {
			t.Parallel()
			read := make(chan int, 1)
			address, _ := serve(t, httpd.Limits{Stall: lenient}, func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				failOn(w, err)
				read <- len(text)
			})
			out, in := io.Pipe()
			go func() {
				for range parts { // longer than a stall in total
					time.Sleep(lenient / 4)
					in.Write(make([]byte, each))
				}
				in.Close()
			}()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+address, out)
			res, err := transport(t, version).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if n := <-read; n != parts*each {
				t.Errorf("%d bytes were read, want %d", n, parts*each)
			}
		})
	}
}

// never writes an endless answer.
func never(w http.ResponseWriter, r *http.Request) {
	text := make([]byte, 1<<20)
	for {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

func TestAnAnswerThatIsNotTaken(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"in large parts": never,
		"in small parts": func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		},
		"as events": func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			control.SetWriteDeadline(time.Time{}) // as some libraries do
			for {
				io.WriteString(w, strings.Repeat("x", 1000))
				if control.Flush() != nil {
					return
				}
			}
		},
		"in one": func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 60<<20)) },
	} {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprint(name, ", HTTP/", version), func(t *testing.T) {
				t.Parallel()
				arrived := make(chan struct{})
				address, idle := serve(t, httpd.Limits{}, func(w http.ResponseWriter, r *http.Request) { close(arrived); handler(w, r) })
				if version == 1 {
					fmt.Fprint(dial(t, address), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				} else {
					req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address, nil)
					res, err := transport(t, 2).RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
				}
				<-arrived
				idle()
			})
		}
	}
	t.Run("in one piece, HTTP/1, after the handler has returned", func(t *testing.T) {
		t.Parallel()
		address, _ := serve(t, httpd.Limits{}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
		conn := dial(t, address)
		for range 3 {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAnswerThatIsTaken(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprint("may be silent for long, HTTP/", version), func(t *testing.T) {
			t.Parallel()
			address, _ := serve(t, httpd.Limits{}, func(w http.ResponseWriter, r *http.Request) {
				for range 3 {
					io.WriteString(w, "event\n")
					w.(http.Flusher).Flush()
					time.Sleep(2 * stall)
				}
			})
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+address, strings.NewReader("hello"))
			res, err := transport(t, version).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, err := io.ReadAll(res.Body); err != nil || string(text) != "event\nevent\nevent\n" {
				t.Errorf("it ends with %v after %q", err, text)
			}
		})
		t.Run(fmt.Sprint("may be followed by another one much later, HTTP/", version), func(t *testing.T) {
			t.Parallel()
			connections := 0
			address, _ := serve(t, httpd.Limits{Stall: lenient / 2}, func(w http.ResponseWriter, r *http.Request) {
				io.ReadAll(r.Body)
				if r.Method == "PUT" {
					w.WriteHeader(http.StatusNoContent)
				}
			})
			client := transport(t, version)
			client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				connections++
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			for _, method := range []string{"PUT", "POST", "PUT"} {
				req, _ := http.NewRequestWithContext(t.Context(), method, "http://"+address, strings.NewReader("hello"))
				req.Header.Set("Expect", "100-continue")
				res, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				io.ReadAll(res.Body)
				res.Body.Close()
				time.Sleep(lenient/2 + stall)
			}
			if connections != 1 {
				t.Errorf("it took %d connections", connections)
			}
		})
		t.Run(fmt.Sprint("is received completely at the client's pace, HTTP/", version), func(t *testing.T) {
			t.Parallel()
			const size = 24 << 20
			address, _ := serve(t, httpd.Limits{Stall: lenient}, func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, size)) })
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address, nil)
			res, err := transport(t, version).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			read := 0
			for buffer := make([]byte, 1<<20); ; {
				n, err := io.ReadFull(res.Body, buffer)
				if read += n; err != nil {
					break
				}
				time.Sleep(lenient / 16) // longer than a stall in total
			}
			if read != size {
				t.Errorf("%d bytes came, want %d", read, size)
			}
		})
	}
}

func TestAConnectionThatIsTakenOver(t *testing.T) {
	t.Parallel()
	address, _ := serve(t, httpd.Limits{}, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer conn.Close()
			time.Sleep(2 * stall) // the server no longer sets its deadlines
			buffer := make([]byte, 2)
			io.ReadFull(conn, buffer)
			conn.Write(buffer)
		}()
	})
	conn := dial(t, address)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	time.Sleep(stall)
	fmt.Fprint(conn, "hi")
	if text, err := io.ReadAll(conn); string(text) != "hi" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestMemoryOfAnswers(t *testing.T) {
	t.Parallel()
	const each = 8 << 20
	ready := make(chan struct{}, 100)
	address, idle := serve(t, httpd.Limits{Stall: soon, Memory: httpd.NewMemory(4*each, 2*each)}, func(w http.ResponseWriter, r *http.Request) {
		defer func() { ready <- struct{}{} }()
		w.Write(make([]byte, each))
	})
	get := func(who string) net.Conn {
		conn := dial(t, address)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", who)
		return conn
	}
	var conns []net.Conn
	for range 20 {
		conns = append(conns, get("greedy"))
	}
	for range 18 { // all but the two that hold the maximum for one client
		<-ready
	}
	busy := 0
	for _, conn := range conns {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "" {
			busy++
		}
	}
	if busy != 18 {
		t.Errorf("%d of 20 were asked to try later, want 18", busy)
	}
	other := get("other")
	res, err := http.ReadResponse(bufio.NewReader(other), nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("another client is answered %v, %v", res, err)
	}
	conns = append(conns, other)
	for _, conn := range conns {
		conn.Close()
	}
	idle()
}

func TestTheLimitOfConnections(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 5
	server := httpd.New(http.NotFoundHandler(), httpd.Limits{}, slog.New(slog.DiscardHandler))
	go server.Serve(httpd.Listener(inner, most))
	t.Cleanup(func() { server.Close() })
	answers := func() (net.Conn, bool) {
		conn := dial(t, inner.Addr().String())
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		return conn, err == nil
	}
	var conns []net.Conn
	for i := range most {
		conn, ok := answers()
		if !ok {
			t.Fatalf("connection %d is refused", i)
		}
		conns = append(conns, conn)
	}
	if _, ok := answers(); ok {
		t.Error("there are more connections than the limit")
	}
	conns[0].Close()
	for deadline := time.Now().Add(soon); ; {
		if _, ok := answers(); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed connection still counts")
		}
	}
}

func TestTheLimitOfACredentialsRequests(t *testing.T) {
	t.Parallel()
	const most = 3
	begun, end := make(chan struct{}, 100), make(chan struct{})
	address, _ := serve(t, httpd.Limits{Requests: most}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		if r.URL.Path == "/wait" {
			<-end
		}
	})
	for version := 1; version <= 2; version++ {
		client := transport(t, version)
		status := func(path, who string) int {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, nil)
			if who != "" {
				req.Header.Set("Cookie", fmt.Sprint(who, version))
			}
			res, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { res.Body.Close() })
			if res.StatusCode == http.StatusOK {
				<-begun
			}
			return res.StatusCode
		}
		for range most {
			if got := status("/wait", "greedy"); got != http.StatusOK {
				t.Fatalf("HTTP/%d: it answers %d", version, got)
			}
		}
		for who, want := range map[string]int{"greedy": http.StatusTooManyRequests, "other": http.StatusOK, "": http.StatusOK} {
			if got := status("/", who); got != want {
				t.Errorf("HTTP/%d: %q is answered %d, want %d", version, who, got, want)
			}
		}
	}
	close(end)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	m := httpd.NewMemory(10, 6)
	take := m.Try
	a := take("a", 100) // the maximum for each client
	if a == nil || take("a", 1) != nil {
		t.Fatal("one client may hold 6, and not more")
	}
	if take("b", 5) != nil {
		t.Error("there are 10 in all")
	}
	b := take("b", 4)
	if b == nil {
		t.Fatal("another one may hold the rest")
	}
	a.Shrink(1)
	more := take("b", 2)
	if more == nil {
		t.Error("released memory is not free")
	}
	more.Release()
	a.Release()
	a.Release()
	b.Release()
	if take("c", 6) == nil {
		t.Error("released memory is not free")
	}
	waiting := make(chan error)
	go func() {
		l, err := m.Take(t.Context(), "c", 6)
		l.Release()
		waiting <- err
	}()
	select {
	case <-waiting:
		t.Error("it does not wait")
	case <-time.After(50 * time.Millisecond):
	}
}
