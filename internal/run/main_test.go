package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an event.
const patience = 2 * time.Minute

// world is a house and a server, whose sandboxes run runners that the tests write.
type world struct {
	t       testing.TB
	db      *db.DB
	scope   db.Scope // Ada, who owns the house
	home    string   // its primary thread
	log     *stream.Log
	threads *thread.Threads
	bots    *bot.Bots
	boxes   *sandbox.Resolver
	driver  *boxes
	secrets *secret.Secrets
	d       *dispatch.Dispatcher
	runs    *run.Runs
}

// setup starts a world. Each launched runner calls runner.
func setup(t *testing.T, runner func(*runner), tune ...func(*dispatch.Config)) *world {
	t.Helper()
	t.Parallel()
	return open(t, runner, tune...)
}

func open(t testing.TB, runner func(*runner), tune ...func(*dispatch.Config)) *world {
	t.Helper()
	base := dbtest.Reuse(t, 6)
	w := &world{t: t, db: base.DB, driver: newBoxes(runner), secrets: secret.New(base.DB, base.Sealer, nil, nil)}
	w.driver.w = w
	w.start(tune...)
	w.houses().Creation = house.Anyone
	ada, err := w.houses().CreatePerson(t.Context(), "Ada")
	must(t, err)
	h, err := w.houses().Create(t.Context(), ada, "Home")
	must(t, err)
	w.scope, w.home = db.Scope{House: h.ID, Agent: ada}, h.PrimaryThread
	return w
}

func (w *world) houses() *house.Houses {
	return house.New(w.db, w.log, w.threads, w.boxes.Environments, w.bots)
}

// member returns a new person of the house.
func (w *world) member(name string) db.Scope {
	w.t.Helper()
	houses := w.houses()
	id, err := houses.CreatePerson(w.t.Context(), name)
	must(w.t, err)
	token, _, err := houses.CreateInvite(w.t.Context(), w.scope, house.Regular, "", 0)
	must(w.t, err)
	_, err = houses.Join(w.t.Context(), id, token)
	must(w.t, err)
	return db.Scope{House: w.scope.House, Agent: id}
}

// start starts the server of the world.
func (w *world) start(tune ...func(*dispatch.Config)) {
	w.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	var err error
	w.log, err = stream.Open(w.t.Context(), w.db, logger)
	must(w.t, err)
	w.threads = thread.New(w.db, w.log)
	w.bots = bot.New(w.db, w.threads)
	w.boxes = sandbox.NewResolver(sandbox.Config{DB: w.db, Log: w.log, Threads: w.threads, Drivers: map[string]sandbox.Driver{"local": w.driver}, Secrets: w.secrets, Door: "http://arbe.internal", Logger: logger})
	c := dispatch.Config{
		DB: w.db, Log: w.log, Threads: w.threads, Boxes: w.boxes, Secrets: w.secrets, Logger: logger, Rosters: w.bots,
		Artifacts: artifact.New(artifact.Config{DB: w.db, Blobs: blob.InPostgres(w.db), MaxSize: 1 << 20, Quota: 1 << 22, Logger: logger}),
		Runs: run.Config{
			Bots:    w.bots,
			Token:   func(context.Context, string, string, string, int64) (string, error) { return "a-token", nil },
			Program: func(arch string) ([]byte, error) { return []byte("runner for " + arch), nil },
			Agents:  map[string]run.Agent{"pi": {Title: "pi", Version: "1.0", Install: "install pi", Steers: true}, "codex": {Title: "Codex", Version: "2.0", Install: "install codex"}},
		},
	}
	for _, f := range tune {
		f(&c)
	}
	w.d, err = dispatch.Start(w.t.Context(), c)
	must(w.t, err)
	w.runs = w.d.Runs
	log, d := w.log, w.d
	var once sync.Once
	w.driver.stopServer = func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := d.Stop(ctx); err != nil {
				w.t.Errorf("stopping: %v", err)
			}
			log.Close()
		})
	}
	w.t.Cleanup(w.driver.stopServer)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}

// spawn delegates a task in Ada's name from the house's primary thread.
func (w *world) spawn(text string) thread.Thread {
	w.t.Helper()
	th, err := w.runs.Spawn(w.t.Context(), w.scope, run.Task{Parent: w.home, Text: text})
	must(w.t, err)
	return th
}

func (w *world) say(threadID, text string) {
	w.t.Helper()
	_, err := w.d.Say(w.t.Context(), dispatch.Speaker{Scope: w.scope}, threadID, dispatch.Message{Text: text})
	must(w.t, err)
}

// until waits for an entry of a thread, and returns all entries up to it.
func (w *world) until(threadID string, is func(entry.Entry) bool) (all []entry.Entry) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for ev, err := range w.log.Tail(ctx, stream.Ref{House: w.scope.House, Name: thread.StreamName(threadID)}, 0) {
		if err != nil {
			w.t.Fatalf("following: %v", err)
		}
		if ev.Entry == nil {
			continue
		}
		if all = append(all, *ev.Entry); is(*ev.Entry) {
			return all
		}
	}
	w.t.Fatalf("it did not come; the log says:\n%s", story(all))
	return nil
}

// ends waits until a run of a thread has ended with a status, and returns the log up to then.
func (w *world) ends(threadID string, epoch int64, status thread.Status) []entry.Entry {
	w.t.Helper()
	all := w.until(threadID, func(e entry.Entry) bool {
		s, ok := entry.As[entry.StatusChanged](e)
		return ok && s.Epoch == epoch && s.From == "running"
	})
	if th := w.get(threadID); th.Run.Epoch == epoch && th.Status != status {
		w.t.Fatalf("the thread is %s, want %s; the log says:\n%s", th.Status, status, story(all))
	}
	if s, _ := entry.As[entry.StatusChanged](all[len(all)-1]); s.To != string(status) {
		w.t.Fatalf("the run is %s, want %s; the log says:\n%s", s.To, status, story(all))
	}
	return all
}

func (w *world) get(threadID string) thread.Thread {
	w.t.Helper()
	th, err := w.threads.Get(w.t.Context(), w.scope, threadID)
	must(w.t, err)
	return th
}

// entries returns all entries of a thread.
func (w *world) entries(threadID string) []entry.Entry {
	w.t.Helper()
	all, _, err := w.log.Read(w.t.Context(), stream.Ref{House: w.scope.House, Name: thread.StreamName(threadID)}, stream.Range{Limit: 1000})
	must(w.t, err)
	return all
}

// of returns the payloads of one kind among entries.
func of[P entry.Payload](entries []entry.Entry) (list []P) {
	for _, e := range entries {
		if p, ok := entry.As[P](e); ok {
			list = append(list, p)
		}
	}
	return list
}

// story returns a log in short form, a line for each entry.
func story(entries []entry.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		words := string(e.Payload)
		if p, ok := entry.Decode(e); ok {
			words = p.Plain()
		}
		fmt.Fprintf(&b, "%d %s %s\n", e.Seq, e.Type, words)
	}
	return b.String()
}

// runner is a launched runner, played by a test.
type runner struct {
	w     *world
	ctx   context.Context // ends when it is killed
	asked chan struct{}   // closed when it is asked to end
	env   map[string]string
	spec  struct {
		Epoch, After int64
		Fresh        bool
		Session      string
		Model        runnerModel
	}
	by   run.Poster
	next int
	// exit is its exit code.
	exit int
}

// runnerModel is how an agent reaches its model.
type runnerModel struct {
	BaseURL string `json:"base_url"`
	KeyEnv  string `json:"key_env"`
}

// post posts payloads.
func (r *runner) post(payloads ...entry.Payload) error {
	var drafts []entry.Draft
	for _, p := range payloads {
		d := entry.NewDraft(entry.RunEntryID(r.spec.Epoch, r.next), "", p)
		if _, ok := p.(entry.Heartbeat); ok {
			d.ID = entry.RunEntryID(r.spec.Epoch, 0) + "beat"
		} else {
			r.next++
		}
		drafts = append(drafts, d)
	}
	return r.send(drafts...)
}

func (r *runner) send(drafts ...entry.Draft) error {
	_, err := r.w.runs.Accept(r.ctx, r.by, stream.Write{ContentType: "application/json", Content: drafts})
	return err
}

// must posts payloads that must be accepted.
func (r *runner) must(payloads ...entry.Payload) {
	if err := r.post(payloads...); err != nil && r.ctx.Err() == nil {
		r.w.t.Errorf("posting: %v", fault.From(err).Detail())
	}
}

func (r *runner) says(text string) entry.PiAssistant {
	return entry.PiAssistant{Harness: "pi", Content: []entry.PiBlock{entry.PiText(text)}, StopReason: entry.PiStopped}
}

// completes reports success.
func (r *runner) completes(result string, through int64) {
	r.must(entry.RunFinished{Epoch: r.spec.Epoch, Outcome: entry.RunCompleted, Result: result, Through: through})
}

// boxes is a driver whose boxes are only names. Its launched programs are runners that tests play.
type boxes struct {
	runner     func(*runner)
	w          *world
	stopServer func()

	mu       sync.Mutex
	n        int
	gone     map[string]bool
	files    map[string][]byte
	commands []string
	running  map[string]*process
	// fails is the output of a failing installation; empty if it succeeds. hold delays commands until it is closed,
	// unless nil; held receives when it does.
	fails string
	hold  chan struct{}
	held  chan struct{}
	// collects plays the second runner of a run whose runner ended without a report. By default it cannot report either.
	collects func(*runner)
	// announced, unless nil, holds a Follow whose time is over until it is closed.
	announced chan struct{}
	// away is how often Follow does not answer. launching, unless nil, is called before a runner is launched, and left when
	// a server stops to follow one.
	away            atomic.Int32
	launching, left func()
	// uses plays a command that uses the changes of a run, and returns its exit code. Nil is success.
	uses func(ref string, c sandbox.Command) int
}

type process struct {
	cancel context.CancelFunc
	asked  chan struct{}
	once   sync.Once
	done   chan struct{}
	exit   int
	killed bool
}

func newBoxes(f func(*runner)) *boxes {
	return &boxes{runner: f, collects: func(r *runner) { r.exit = 1 }, gone: map[string]bool{}, files: map[string][]byte{}, running: map[string]*process{}}
}

var errGone = fault.New(fault.NotFound, "the box is gone", "use another")

func (b *boxes) there(ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone[ref] {
		return errGone
	}
	return nil
}

func (b *boxes) Create(_ context.Context, s sandbox.Spec) (string, error) { return "box-" + s.ID, nil }

func (b *boxes) Exec(ctx context.Context, ref string, c sandbox.Command) (sandbox.Result, error) {
	if b.hold != nil {
		select {
		case b.held <- struct{}{}:
		default:
		}
		select {
		case <-b.hold:
		case <-ctx.Done():
			return sandbox.Result{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone[ref] {
		return sandbox.Result{}, errGone
	}
	line := strings.Join(c.Argv, " ")
	b.commands = append(b.commands, line)
	switch {
	case line == "uname -m":
		fmt.Fprintln(c.Stdout, "x86_64")
	case strings.Contains(line, "test -x"):
		there := "no"
		if b.files[ref+c.Argv[len(c.Argv)-1]] != nil {
			there = "yes"
		}
		fmt.Fprintln(c.Stdout, there)
	case strings.Contains(line, "install ") && b.fails != "":
		fmt.Fprintln(c.Stdout, b.fails)
		return sandbox.Result{ExitCode: 1}, nil
	}
	return sandbox.Result{}, nil
}

func (b *boxes) Upload(_ context.Context, ref, path string, _ fs.FileMode, content io.Reader) error {
	text, err := io.ReadAll(content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[ref+path] = text
	return err
}

func (b *boxes) Download(_ context.Context, ref, path string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, ok := b.files[ref+path]
	if !ok || b.gone[ref] {
		return nil, fault.New(fault.NotFound, "there is no such file", "name another")
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

func (b *boxes) Probe(_ context.Context, ref string) (sandbox.Liveness, error) {
	if b.there(ref) != nil {
		return sandbox.Gone, nil
	}
	return sandbox.Live, nil
}

// Destroy also kills the runners.
func (b *boxes) Destroy(_ context.Context, ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone[ref] = true
	for id, p := range b.running {
		if strings.HasPrefix(id, ref+" ") {
			p.killed = true
			p.cancel()
		}
	}
	return nil
}

func (b *boxes) Quarantine(context.Context, string) (string, error) { return "", nil }
func (b *boxes) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) {
	return nil, nil
}
func (b *boxes) Close(context.Context) error { return nil }
func (b *boxes) Launches() bool              { return true }
func (b *boxes) Door() string                { return "http://arbe.internal" }

func (b *boxes) Launch(ctx context.Context, ref, id string, c sandbox.Command) error {
	if b.launching != nil {
		b.launching()
	}
	if err := ctx.Err(); err != nil {
		return fault.From(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone[ref] {
		return errGone
	}
	if b.running[ref+" "+id] != nil {
		return nil
	}
	running, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, asked: make(chan struct{}), done: make(chan struct{})}
	b.running[ref+" "+id] = p
	if c.Argv[0] == changesProgram {
		go func() {
			defer close(p.done)
			if b.uses != nil {
				p.exit = b.uses(ref, c)
			}
		}()
		return nil
	}
	play := b.runner
	if strings.HasSuffix(id, "-collect") {
		play = b.collects
	} else {
		b.n++
	}
	r := &runner{w: b.w, ctx: running, asked: p.asked, env: c.Env}
	if err := json.Unmarshal(b.files[ref+c.Argv[1]], &r.spec); err != nil {
		return err
	}
	r.by = run.Poster{House: b.w.scope.House, Thread: c.Env["ARBE_THREAD_ID"], Agent: c.Env["ARBE_AUTHOR_ID"], Epoch: r.spec.Epoch}
	go func() {
		defer close(p.done)
		play(r)
		p.exit = r.exit
	}()
	return nil
}

func (b *boxes) Input(context.Context, string, string) (io.WriteCloser, error) {
	return nil, errors.ErrUnsupported
}
func (b *boxes) Release(context.Context, string, string, int64) error { return nil }
func (b *boxes) Extend(context.Context, string, string, int64) error  { return nil }

func (b *boxes) process(ref, id string) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running[ref+" "+id]
}

func (b *boxes) Follow(ctx context.Context, ref, id string, _ int64, to func(sandbox.Record) error) error {
	if b.away.Add(-1) >= 0 {
		return fault.New(fault.Unavailable, "the provider does not answer", "try again")
	}
	p := b.process(ref, id)
	if p == nil {
		return errGone
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if b.left != nil {
			b.left()
		}
		if b.announced != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			<-b.announced
		}
		return ctx.Err()
	}
	b.mu.Lock()
	gone, exit := b.gone[ref], p.exit
	b.mu.Unlock()
	if err := to(sandbox.Record{Kind: sandbox.RecordStart}); err != nil {
		return err
	}
	if err := to(sandbox.Record{Kind: sandbox.RecordStdout, Data: []byte("the last words\n")}); err != nil {
		return err
	}
	return to(sandbox.Record{Kind: sandbox.RecordExit, ExitCode: exit, BoxEnded: gone})
}

func (b *boxes) Interrupt(context.Context, string, string) error { return nil }

func (b *boxes) End(ctx context.Context, ref, id string, patience time.Duration) error {
	p := b.process(ref, id)
	if p == nil {
		return nil
	}
	p.once.Do(func() { close(p.asked) })
	select {
	case <-p.done:
	case <-time.After(patience):
		p.cancel()
		<-p.done
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (b *boxes) Forget(context.Context, string, string) error { return nil }

// launched returns how many runners were launched.
func (b *boxes) launched() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// silence makes the last heartbeat of a run older.
func (w *world) silence(threadID string, by time.Duration) {
	w.t.Helper()
	err := w.db.In(w.t.Context(), w.scope, func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), "update threads set heartbeat_at = now() - $2::interval where id = $1", threadID, by)
		return err
	})
	must(w.t, err)
}

func write(drafts ...entry.Draft) stream.Write {
	return stream.Write{ContentType: "application/json", Content: drafts}
}
