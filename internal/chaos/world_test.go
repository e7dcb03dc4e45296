//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	arbe "github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// resumeWithin limits how long anything may take to work again after the trouble has ended.
const resumeWithin = 2 * time.Minute

// world is one Postgres, some servers on it, and the clients that write to and follow two logs: a thread's, and
// a stream of its own.
type world struct {
	*testing.T
	dir     string
	program string     // arbe
	rng     *rand.Rand // of the test's goroutine
	began   time.Time
	db      *postgres
	servers []*server

	thread string
	// threadLog and ownLog are the names of the two streams.
	threadLog, ownLog string

	// The end of writing ends the writers, and the end of following the followers.
	writing, following       context.Context
	stopWriting, stopFollows context.CancelFunc
	work                     sync.WaitGroup // of the writers
	follows                  sync.WaitGroup

	// Only the test's goroutine uses these.
	connections int
	writers     []*writer
	tails       []*follower
	prints      []*printed

	// full counts appends that were refused because the disk is full.
	full atomic.Int64

	mu      sync.Mutex
	history History
	odd     []string
}

// newWorld starts everything except the clients. Its files are removed after the test, unless it fails.
func newWorld(t *testing.T, seed uint64, s scenario) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("arbe-chaos-%d-", os.Getpid()))
	if err == nil {
		err = os.Chmod(dir, 0o755) // Postgres may run as another user, who must be able to enter
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, dir: dir, rng: rand.New(rand.NewPCG(seed, 0)), program: program(t, s.lean), began: time.Now(), ownLog: "own"}
	w.writing, w.stopWriting = context.WithCancel(context.Background())
	w.following, w.stopFollows = context.WithCancel(context.Background())
	t.Cleanup(w.tearDown)
	if s.disk > 0 {
		mount(t, filepath.Join(dir, "postgres"), s.disk)
	}
	w.db = startPostgres(t, filepath.Join(dir, "postgres"))
	w.serve(s.servers)
	return w
}

// serve starts servers and creates the logs.
func (w *world) serve(servers int) {
	w.Helper()
	key, err := secretKey()
	if err != nil {
		w.Fatal(err)
	}
	for i := range servers {
		s := &server{world: w, name: fmt.Sprintf("server-%d", i+1), key: key}
		w.servers = append(w.servers, s)
		s.start()
		w.Cleanup(func() { s.process.kill() })
	}
	first := w.servers[0]
	houses, err := first.client(http.DefaultClient).Houses.ListHouses(w.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		w.Fatal(err)
	}
	made, err := first.client(http.DefaultClient).Threads.CreateThread(w.Context(), &arbev1.CreateThreadRequest{HouseId: houses.Houses[0].Id})
	if err != nil {
		w.Fatal(err)
	}
	w.thread, w.threadLog = made.Thread.Id, "arbe-thread-"+made.Thread.Id
	req := first.request(w.Context(), http.MethodPut, w.ownLog, nil)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusCreated {
		w.Fatalf("creating a stream: status %d", res.StatusCode)
	}
}

// tearDown ends the clients and removes the files. After a failure it keeps the files that explain it.
func (w *world) tearDown() {
	w.stopWriting()
	w.stopFollows()
	w.work.Wait()
	w.follows.Wait()
	if !w.Failed() {
		os.RemoveAll(w.dir)
		return
	}
	os.RemoveAll(filepath.Join(w.dir, "postgres", "data"))
	text, _ := json.MarshalIndent(w.history, "", " ")
	os.WriteFile(filepath.Join(w.dir, "history.json"), text, 0o644)
	w.Logf("the history, and what servers and Postgres said, is in %s", w.dir)
}

// now is the time on the history's clock.
func (w *world) now() time.Duration { return time.Since(w.began) }

// report records something that no client should ever see.
func (w *world) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odd = append(w.odd, fmt.Sprintf("at %v: ", w.now())+fmt.Sprintf(format, args...))
}

// pause lets the clients work for a while, at random between two durations.
func (w *world) pause(least, most time.Duration) {
	select {
	case <-time.After(least + time.Duration(w.rng.Int64N(int64(most-least)+1))):
	case <-w.Context().Done():
	}
}

// await waits until a condition holds.
func (w *world) await(what string, within time.Duration, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(within); !holds(); {
		if time.Now().After(deadline) {
			w.explain()
			w.Fatalf("after %v it is not so: %s", within, what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		}
	}
}

// explain shows what was reported so far.
func (w *world) explain() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	const enough = 20
	for i, text := range w.odd {
		if i == enough {
			w.Errorf("and %d more", len(w.odd)-enough)
			break
		}
		w.Error(text)
	}
	w.odd = nil
}

// resume waits until each writer has completed an append that it began after this call.
func (w *world) resume() {
	w.Helper()
	from := w.now()
	for _, wr := range w.writers {
		w.await("writer "+wr.name+" goes on", resumeWithin, func() bool { return time.Duration(wr.through.Load()) > from })
	}
}

// finish ends the writers, waits until the tails have reached the end, and returns the complete history.
func (w *world) finish() History {
	w.Helper()
	w.stopWriting()
	w.work.Wait()
	w.history.Logs = w.logs()
	for _, f := range w.tails {
		end := int64(len(w.history.Logs[f.log]))
		for deadline := time.Now().Add(resumeWithin); f.reached.Load() < end && time.Now().Before(deadline); {
			<-time.After(10 * time.Millisecond)
		}
	}
	for _, p := range w.prints {
		end := int64(len(w.history.Logs[p.follower.log]))
		for deadline := time.Now().Add(resumeWithin); p.look() < end && time.Now().Before(deadline); {
			<-time.After(10 * time.Millisecond)
		}
		w.tails = append(w.tails, p.follower)
	}
	w.stopFollows()
	w.follows.Wait()
	for _, f := range w.tails {
		w.history.Tails = append(w.history.Tails, Tail{Log: f.log, Name: f.name, Seen: f.seen})
	}
	return w.history
}

// verify finishes the run, and fails the test if a promise was broken.
func (w *world) verify() {
	w.Helper()
	h := w.finish()
	w.explain()
	w.listen()
	const enough = 20
	found := Check(h)
	for i, v := range found {
		if i == enough {
			w.Errorf("and %d more", len(found)-enough)
			break
		}
		w.Error(v)
	}
	outcomes := map[Outcome]int{}
	for _, a := range h.Appends {
		outcomes[a.Outcome]++
	}
	w.Logf("%d appends acknowledged, %d unknown, %d refused; %d reads; logs of %d and %d records, %d tails",
		outcomes[Acknowledged], outcomes[Unknown], outcomes[Refused], len(h.Reads), len(h.Logs[w.threadLog]), len(h.Logs[w.ownLog]), len(h.Tails))
	if outcomes[Acknowledged] == 0 || len(h.Reads) == 0 {
		w.Error("nothing happened: this shows nothing")
	}
}

// listen searches the servers' logs for lines that must never occur.
func (w *world) listen() {
	w.Helper()
	for _, s := range w.servers {
		said, err := os.ReadFile(filepath.Join(w.dir, s.name+".log"))
		if err != nil {
			w.Error(err)
		}
		for line := range strings.Lines(string(said)) {
			for _, word := range []string{"DATA RACE", "panic:", "fatal error:", "a request failed", "a call failed"} {
				if strings.Contains(line, word) {
					w.Errorf("%s says %s", s.name, line)
				}
			}
		}
	}
}

// logs reads the final logs from Postgres, without a server.
func (w *world) logs() map[string][]Record {
	w.Helper()
	logs := map[string][]Record{w.threadLog: nil, w.ownLog: nil}
	conn := w.db.owner(w)
	defer conn.Close(w.Context())
	rows, err := conn.Query(w.Context(), `
		select s.name, e.seq, e.payload ->> 'text' from entries e join streams s on s.id = e.stream_id
		where s.name in ($1, $2) order by s.name, e.seq`, w.threadLog, w.ownLog)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, text string
		var seq int64
		if err := rows.Scan(&name, &seq, &text); err != nil {
			w.Fatal(err)
		}
		logs[name] = append(logs[name], Record{seq, label(text)})
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return logs
}

// server is an `arbe serve`.
type server struct {
	world *world
	name  string
	key   string
	// url and token are known after the first start and do not change.
	url, token string
	process    *process
}

// start starts the server, or restarts it, and returns when it serves. While Postgres is away a start fails and is
// tried again.
func (s *server) start() {
	w := s.world
	w.Helper()
	data := filepath.Join(w.dir, s.name)
	addr := "127.0.0.1:0"
	if s.url != "" {
		addr = strings.TrimPrefix(s.url, "http://")
	}
	out, err := os.OpenFile(data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.Fatal(err)
	}
	defer out.Close() // the process has its own copy
	for deadline := time.Now().Add(resumeWithin); ; {
		said, err := out.Seek(0, io.SeekEnd)
		if err != nil {
			w.Fatal(err)
		}
		cmd := exec.Command(w.program, "serve")
		cmd.Dir = w.dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "DATABASE_URL=" + w.db.wire.url(), "ARBE_SECRET_KEY=" + s.key,
			"ARBE_DATA_DIR=" + data, "ARBE_ADDR=" + addr, "ARBE_LONG_POLL_TIMEOUT=2s",
			"ARBE_SANDBOX_RUNTIME=none", // these tests run no commands
		}
		cmd.Stdout, cmd.Stderr = out, out
		if s.process, err = spawn(cmd); err != nil {
			w.Fatal(err)
		}
		if s.ready(data, said, deadline) {
			s.watch(s.process)
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s does not come up: its log is %s", s.name, out.Name())
		}
	}
}

// ready waits until the server's log says that it serves. It returns false if the process ended before that.
func (s *server) ready(data string, said int64, deadline time.Time) bool {
	for time.Now().Before(deadline) {
		select {
		case <-s.process.exited:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		log, err := os.ReadFile(data + ".log")
		if err != nil || !strings.Contains(string(log[said:]), "arbe is running at") {
			continue
		}
		if s.url == "" {
			var login struct{ Host, Token string }
			text, err := os.ReadFile(filepath.Join(data, "cli.json"))
			if err == nil {
				err = json.Unmarshal(text, &login)
			}
			if err != nil {
				s.world.Fatal(err)
			}
			s.url, s.token = login.Host, login.Token
		}
		return true
	}
	return false
}

// watch reports a server that ended by itself.
func (s *server) watch(p *process) {
	go func() {
		<-p.exited
		if !p.meant.Load() {
			s.world.report("%s ended by itself", s.name)
		}
	}()
}

// client returns a Go client of this server that uses these connections.
func (s *server) client(over *http.Client) *arbe.Client {
	return arbe.New(s.url, s.token, arbe.WithHTTPClient(over))
}

// request returns a request to the stream door; what is a stream's name and possibly a query.
func (s *server) request(ctx context.Context, method, what string, body []byte) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/api/stream/"+what, strings.NewReader(string(body)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	return req
}

// connection is a client's own way to the servers: it uses one at a time, and the next one when that fails.
type connection struct {
	world  *world
	number int
	http   *http.Client
	at     atomic.Int32
}

func (w *world) connect() *connection {
	w.connections++
	c := &connection{world: w, number: w.connections, http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	c.at.Store(int32(c.number))
	return c
}

func (c *connection) server() *server {
	return c.world.servers[int(c.at.Load())%len(c.world.servers)]
}

// leave switches to the next server after a short pause.
func (c *connection) leave(ctx context.Context) {
	c.at.Add(1)
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// label is the part of a text that names its append; the rest only makes it long.
func label(text string) string {
	name, _, _ := strings.Cut(text, " ")
	return name
}
