package door_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/door"
)

func TestManyFollowersOfAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)

	w.run(t, "are sent everything once, wherever some of them stop reading for a while", func(t *testing.T, w *world) {
		w.make("stops")
		const pieces, followers = 40, 12
		padding := strings.Repeat("x", 256<<10) // 10 MB in all: more than sockets and the log's recent entries hold
		goOn := make(chan struct{})
		var ended sync.WaitGroup
		for i := range followers {
			f := w.follower("stops", "-1")
			ended.Go(func() {
				f.readTo(i * pieces / followers)
				<-goOn
				f.readTo(pieces)
			})
		}
		for i := range pieces {
			w.post("stops", fmt.Sprintf("%d\n%s\n", i, padding)).want(204)
		}
		close(goOn)
		ended.Wait()
	})

	w.run(t, "are sent everything once, while they come and go", func(t *testing.T, w *world) {
		w.make("visits")
		const pieces, followers = 300, 16
		var ended sync.WaitGroup
		for range followers {
			ended.Go(func() {
				for next, offset, ok := 0, "-1", true; ok && next < pieces; {
					f := w.follower("visits", offset)
					f.next = next
					ok = f.readTo(min(next+1+rand.IntN(20), pieces))
					f.conn.Close()
					next, offset = f.next, f.offset
				}
			})
		}
		for i := range pieces {
			w.post("visits", fmt.Sprintf("%d\n", i)).want(204)
		}
		ended.Wait()
	})

	w.run(t, "are not sent entries of another stream of the same name", func(t *testing.T, w *world) {
		w.make("again")
		var followers []*follower
		for range 3 {
			followers = append(followers, w.follower("again", "-1"))
		}
		padding := strings.Repeat("x", 256<<10)
		for i := range 40 {
			w.post("again", fmt.Sprintf("%d\n%s\n", i, padding)).want(204)
		}
		w.do("DELETE", "again", "").want(204)
		w.make("again")
		for range 60 {
			w.post("again", "1000\n").want(204)
		}
		for _, f := range followers {
			for f.lines.Scan() && f.read(f.lines.Text()) {
			}
		}
	})

	w.run(t, "are still served when the first of them leaves", func(t *testing.T, w *world) {
		w.make("first")
		first, second := w.follower("first", "-1"), w.follower("first", "-1")
		w.post("first", "0\n").want(204)
		first.readTo(1)
		second.readTo(1)
		first.conn.Close()
		for i := range 20 {
			w.post("first", fmt.Sprintf("%d\n", i+1)).want(204)
			second.readTo(i + 2)
		}
	})

	w.run(t, "keep the cursors that they sent", func(t *testing.T, w *world) {
		w.make("cursors")
		var followers []*follower
		for i := range 150 {
			followers = append(followers, w.follower("cursors", fmt.Sprintf("-1&cursor=%d", i%3*900_000_000)))
		}
		for i := range 3 {
			w.post("cursors", fmt.Sprintf("%d\n", i)).want(204)
			for _, f := range followers {
				f.readTo(i + 1)
			}
		}
		for i, f := range followers {
			if n, _ := strconv.Atoi(f.cursor); len(f.cursors) != 1 || n/900_000_000 != i%3 {
				t.Errorf("the cursors of follower %d: %v", i, f.cursors)
			}
		}
	})

	w.run(t, "are all notified when it is closed, and their connections end", func(t *testing.T, w *world) {
		w.make("closing")
		var followers []*follower
		for range 5 {
			followers = append(followers, w.follower("closing", "-1"))
		}
		w.do("POST", "closing", "0\n", asText, "Stream-Closed: true").want(204)
		for _, f := range followers {
			f.readTo(1)
			for f.lines.Scan() {
				f.read(f.lines.Text())
			}
			if !f.closed {
				t.Error("the connection of one ends without the event")
			}
		}
	})
}

func TestAFollowerThatLosesItsPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("private")
	refuse := make(chan context.CancelFunc, 1)
	members := w.authorize
	w.authorize = func(r *http.Request, action auth.Action, name string) (door.Pass, error) {
		pass, err := members(r, action, name)
		if r.URL.Query().Has("guest") {
			pass.While = func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				refuse <- cancel
				return ctx, cancel
			}
		}
		return pass, err
	}
	w.url, _ = w.serve()
	member, guest := w.follower("private", "-1"), w.follower("private", "-1&guest")
	w.post("private", "0\n").want(204)
	member.readTo(1)
	guest.readTo(1)
	(<-refuse)()
	for guest.lines.Scan() {
	}
	w.post("private", "1\n").want(204)
	member.readTo(2)
	if guest.next != 1 {
		t.Errorf("a follower whose permission ended got %d pieces", guest.next)
	}
}

// follower reads numbered pieces, which must arrive in order.
type follower struct {
	t     testing.TB
	conn  net.Conn
	lines *bufio.Scanner
	// next is the number of the next piece, and offset its offset; empty until a control event gives it.
	next   int
	offset string
	// cursor is the last of the cursors that it received.
	cursor  string
	cursors map[string]bool
	closed  bool
}

// follower follows a stream from an offset, over a connection with small buffers.
func (w *world) follower(name, offset string) *follower {
	w.t.Helper()
	conn := w.dial(name + "?live=sse&offset=" + offset)
	conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	f := &follower{t: w.t, conn: conn, offset: offset, cursors: map[string]bool{}}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		w.t.Errorf("following %s: %v %v", name, response, err)
		response = &http.Response{Body: http.NoBody}
	}
	f.lines = bufio.NewScanner(response.Body)
	f.lines.Buffer(nil, 1<<20)
	return f
}

// readTo reads until it has received so many pieces and the offset after them. It reports whether it did.
func (f *follower) readTo(pieces int) bool {
	for f.next < pieces || f.offset == "" {
		if !f.lines.Scan() {
			f.t.Errorf("it ends after %d pieces: %v", f.next, f.lines.Err())
			return false
		}
		if !f.read(f.lines.Text()) {
			return false
		}
	}
	return true
}

var controlData = regexp.MustCompile(`^data:{"streamNextOffset":"([^"]*)"(?:,"streamCursor":"([^"]*)")?.*`)

// read handles a line, and reports whether it was expected.
func (f *follower) read(line string) bool {
	if control := controlData.FindStringSubmatch(line); control != nil {
		f.offset = control[1]
		if f.closed = strings.Contains(line, `"streamClosed":true`); !f.closed {
			f.cursor = control[2]
			f.cursors[f.cursor] = true
		}
		return true
	}
	text, ok := strings.CutPrefix(line, "data:")
	number, err := strconv.Atoi(text)
	if !ok || err != nil {
		return true // padding
	}
	if number != f.next {
		f.t.Errorf("after %d pieces comes %d", f.next, number)
		return false
	}
	f.next++
	f.offset = ""
	return true
}
