package door_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/door"
)

func TestAReaderThatStopsReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("large")
	const pieces = 40 // 10 MB: more than sockets and the log's recent entries hold
	padding := strings.Repeat("x", 256<<10)

	stopped := w.dial("large?live=sse&offset=-1")
	moving := w.dial("large?live=sse&offset=-1")
	read := make(chan error, 1)
	go func() { read <- pieceByPiece(moving, pieces) }()
	for i := range pieces {
		w.post("large", fmt.Sprintf("%d\n%s\n", i, padding)).want(204)
	}
	w.run(t, "holds up neither who writes nor who else reads", func(t *testing.T, _ *world) {
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
	w.run(t, "reads on later, without a gap and without a repetition", func(t *testing.T, _ *world) {
		if err := pieceByPiece(stopped, pieces); err != nil {
			t.Error(err)
		}
	})
}

// dial asks for a stream over a connection of its own.
func (w *world) dial(name string) net.Conn {
	w.t.Helper()
	at, err := url.Parse(w.url + name)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", at.RequestURI(), at.Host, w.ours.key)
	return conn
}

// pieceByPiece reads events of numbered pieces, and tells the first one that is not the next.
func pieceByPiece(conn net.Conn, pieces int) error {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next := 0
	for next < pieces && lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data:")
		number, err := strconv.Atoi(text)
		if !ok || err != nil {
			continue // padding, or a control event
		}
		if number != next {
			return fmt.Errorf("after %d pieces comes %d", next, number)
		}
		next++
	}
	if next < pieces {
		return fmt.Errorf("it ends after %d pieces: %v", next, lines.Err())
	}
	return nil
}

func TestReadersThatGoAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("quiet")
	var served sync.WaitGroup
	d := door.New(door.Config{Log: w.log, Authorize: w.authorize, Logger: slog.New(slog.DiscardHandler), LongPoll: time.Hour})
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer served.Done()
		arrived <- struct{}{}
		d.ServeHTTP(rw, r)
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	for _, live := range []string{"sse", "sse", "long-poll", "long-poll"} {
		go func() {
			req := w.request(server.URL+"/api/stream/", "GET", "quiet?offset=-1&live="+live, "", "Authorization: Bearer "+w.ours.key)
			if res, err := http.DefaultClient.Do(req.WithContext(ctx)); err == nil {
				defer res.Body.Close()
				bufio.NewReader(res.Body).ReadString(0)
			}
		}()
		<-arrived
	}
	leave()

	gone := make(chan struct{})
	go func() { served.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the server still works for readers who have gone away")
	}
}
