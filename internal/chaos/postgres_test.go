//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/embedded"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// postgres is a cluster of the test's own. It syncs each commit, as an operator's does.
type postgres struct {
	dir    string
	server *embedded.Server
	// wire is how servers reach it.
	wire *wire
}

func startPostgres(t testing.TB, dir string) *postgres {
	t.Helper()
	from, err := template()
	if err != nil {
		t.Fatalf("making a cluster: %s", fault.From(err).Detail())
	}
	if said, err := exec.Command("cp", "-a", from+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, said)
	}
	p := &postgres{dir: dir}
	p.start(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		p.server.Stop(ctx)
	})
	p.wire = layWire(t)
	p.wire.lead(p.server.URL())
	return p
}

// secretKey is the key with which all servers of this run seal.
var secretKey = sync.OnceValues(secret.NewKey)

// template is the directory of a stopped cluster with a migrated database. It is created once and copied for each test.
var template = sync.OnceValues(func() (dir string, err error) {
	ctx := context.Background()
	dir = filepath.Join(scratch, "postgres")
	server, err := embedded.Start(ctx, embedded.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	key, err := secretKey()
	if err != nil {
		return "", err
	}
	sealer, err := secret.NewSealer(key, nil)
	if err != nil {
		return "", err
	}
	if _, err = db.Migrate(ctx, server.URL(), sealer); err != nil {
		return "", err
	}
	if err := server.Stop(ctx); err != nil {
		return "", err
	}
	return dir, os.Remove(filepath.Join(dir, "port")) // each copy has its own
})

// start starts Postgres, also after it was killed.
func (p *postgres) start(t testing.TB) {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Config{Dir: p.dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("starting Postgres: %s", fault.From(err).Detail())
	}
	p.server = server
	if p.wire != nil {
		p.wire.lead(server.URL())
	}
}

// kill kills the postmaster with SIGKILL, and if all is set, its processes too. Otherwise they notice by themselves.
func (p *postgres) kill(t testing.TB, all bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	syscall.Kill(postmaster, syscall.SIGKILL)
	if all {
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	<-p.server.Done()
}

// restart is an operator's fast restart.
func (p *postgres) restart(t testing.TB) {
	t.Helper()
	if err := p.server.Stop(t.Context()); err != nil {
		t.Fatalf("stopping Postgres: %s", fault.From(err).Detail())
	}
	p.start(t)
}

// owner connects without the wire and bypasses row-level security. The caller closes the connection.
func (p *postgres) owner(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.server.URL())
	if err != nil {
		t.Fatalf("connecting to Postgres: %v", err)
	}
	return conn
}

func (p *postgres) execute(t testing.TB, statements ...string) {
	t.Helper()
	conn := p.owner(t)
	defer conn.Close(t.Context())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// accident is what happens to a commit on its way.
type accident int32

const (
	none accident = iota
	// neverArrives: Postgres receives nothing of it.
	neverArrives
	// halfArrives: Postgres receives its beginning only.
	halfArrives
	// answerLost: Postgres commits, and its answer is lost.
	answerLost
)

// wire is a proxy between servers and a Postgres. Its address stays the same, and it can be cut.
type wire struct {
	listener net.Listener

	mu       sync.Mutex
	upstream *url.URL
	// conns are all connections, each with whether its bytes are dropped.
	conns map[net.Conn]*atomic.Bool

	// next is the accident of the next commit; happened counts accidents.
	next     atomic.Int32
	happened atomic.Int64
}

func layWire(t testing.TB) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, conns: map[net.Conn]*atomic.Bool{}}
	t.Cleanup(func() {
		listener.Close()
		w.cut()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w
}

// lead makes the wire lead to the database at this URL.
func (w *wire) lead(to string) {
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upstream = u
}

// url is the database's URL through the wire.
func (w *wire) url() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := *w.upstream
	u.Host = w.listener.Addr().String()
	return u.String()
}

// cut ends all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		conn.Close()
	}
}

// hush drops all bytes on the present connections without closing them, as when a machine disappears.
func (w *wire) hush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, silent := range w.conns {
		silent.Store(true)
	}
}

func (w *wire) keep(conn net.Conn, silent *atomic.Bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[conn] = silent
}

func (w *wire) drop(conn net.Conn) {
	conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, conn)
}

func (w *wire) carry(server net.Conn) {
	var mute, silent atomic.Bool
	w.keep(server, &silent)
	defer w.drop(server)
	w.mu.Lock()
	upstream := w.upstream.Host
	w.mu.Unlock()
	postgres, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	w.keep(postgres, &silent)
	defer w.drop(postgres)

	go func() {
		defer server.Close()
		pass(postgres, server, func(said []byte) []byte {
			switch {
			case mute.Load():
				return nil
			case silent.Load():
				return said[:0]
			}
			return said
		})
	}()
	pass(server, postgres, func(said []byte) []byte {
		switch {
		case silent.Load():
			return said[:0]
		case !commits(said):
			return said
		}
		a := accident(w.next.Swap(int32(none)))
		if a != none {
			w.happened.Add(1)
		}
		switch a {
		case neverArrives:
			return nil
		case halfArrives:
			postgres.Write(said[:rand.IntN(len(said))])
			return nil
		case answerLost:
			mute.Store(true) // before the commit is passed on, so that its answer cannot come first
		}
		return said
	})
}

// commits reports whether bytes from a server end a transaction that writes: they have the name of the statement
// that writes a batch, or the word commit.
func commits(said []byte) bool { return bytes.Contains(said, []byte("commit")) }

// pass copies what through lets through from one connection to the other, until it lets nothing through or one of
// them ends.
func pass(from, to net.Conn, through func(said []byte) []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		said := through(buf[:n])
		if said == nil {
			return
		}
		if _, err := to.Write(said); err != nil {
			return
		}
	}
}
