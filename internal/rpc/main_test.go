package rpc_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/port"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is the service layer as a server assembles it, with its own database and port, and the people who use it. Ada owns a
// house, and Cyd is a member of it. Bob owns another house.
type bench struct {
	dispatcher *dispatch.Dispatcher
	// provider makes all sandboxes.
	provider *echo
	// providers stands in for all providers and model servers of houses.
	providers *modeltest.Server
	coders    sync.Mutex // held while a coding agent is made
	*dbtest.Database
	owner *pgxpool.Pool // the owner of the schema, who bypasses row-level security
	url   string
	// logged holds what the server has logged.
	logged        *logbook
	auth          *auth.Auth
	blobs         string // the directory of artifacts' bytes
	houses        *house.Houses
	pusher        *push.Pusher
	ada, cyd, bob person
}

// person is someone with a credential.
type person struct {
	*arbe.Client
	id, key string
	// house is their house in the test.
	house *arbev1.House
}

func setup(t testing.TB) *bench {
	t.Helper()
	return setupOn(t, dbtest.Reuse(t, 6))
}

// setupOn is setup on a database.
func setupOn(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	b := serve(t, d)
	b.ada, b.bob, b.cyd = b.person(t, "Ada"), b.person(t, "Bob"), b.person(t, "Cyd")
	b.ada.house, b.bob.house = b.newHouse(t, b.ada, "Ada's"), b.newHouse(t, b.bob, "Bob's")
	b.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", b.ada.house.Id, b.cyd.id)
	b.cyd.house = b.ada.house
	return b
}

// serve starts a server on a database.
func serve(t testing.TB, d *dbtest.Database) *bench {
	t.Helper()
	ctx := t.Context()
	quiet, logged := slog.New(slog.DiscardHandler), new(logbook)
	log, err := stream.Open(ctx, d.DB, quiet)
	must(t, err)
	t.Cleanup(log.Close)
	threads := thread.New(d.DB, log)
	nothing := model.NewInstallation(func(string) string { return "" }, func(context.Context, model.Endpoint) (model.Listing, error) {
		return model.Listing{}, io.ErrUnexpectedEOF
	})
	accounts := map[string]sandbox.Account{sandbox.DefaultDriver: {Secret: accountKey, Open: func(key string) (sandbox.Driver, error) { return &account{key: key}, nil }}}
	secrets := secret.New(d.DB, d.Sealer, secret.EachUse(nothing.SecretUses, sandbox.AccountUses(accounts)), nil)
	provider := &echo{}
	boxes := sandbox.NewResolver(sandbox.Config{
		DB: d.DB, Log: log, Threads: threads, Drivers: map[string]sandbox.Driver{sandbox.DefaultDriver: provider}, Accounts: accounts, Secrets: secrets, Logger: quiet,
	})
	blobs := t.TempDir()
	store, err := blob.OpenDirectory(blobs)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	artifacts := artifact.New(artifact.Config{DB: d.DB, Blobs: store, MaxSize: 4 << 20, Logger: quiet})
	bots := bot.New(d.DB, threads)
	dispatcher, err := dispatch.Start(ctx, dispatch.Config{DB: d.DB, Log: log, Threads: threads, Boxes: boxes, Logger: quiet, Artifacts: artifacts,
		Runs: run.Config{Bots: bots, Agents: map[string]run.Agent{"pi": {Title: "pi", Version: "1"}}}})
	must(t, err)
	t.Cleanup(func() { dispatcher.Stop(context.Background()) })

	b := &bench{Database: d, dispatcher: dispatcher, provider: provider, logged: logged, auth: auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer, Recheck: 50 * time.Millisecond}), houses: house.New(d.DB, log, threads, boxes.Environments, bots)}
	t.Cleanup(b.auth.Listen())
	b.owner, err = pgxpool.New(ctx, d.OwnerURL)
	must(t, err)
	t.Cleanup(b.owner.Close)
	b.blobs = blobs
	pictures, err := live.Open(ctx, live.Config{DB: d.DB, Log: log, Threads: threads, Houses: b.houses, Bots: bots, Inboxes: inbox.New(d.DB), Boxes: boxes, Logger: quiet})
	must(t, err)
	t.Cleanup(pictures.Close)
	b.providers = modeltest.New(t, nil)
	services := rpc.Services{
		DB:      d.DB,
		Secrets: secrets, Models: model.NewHouses(d.DB, secrets, nothing, b.providers.Asker()),
		Auth: b.auth, Houses: b.houses, Bots: bots, Threads: threads, Log: log, Live: pictures, Inboxes: inbox.New(d.DB), Boxes: boxes,
		Dispatcher: dispatcher, Logger: logged.logger(),
		Ports:     port.New(port.Config{Auth: b.auth, Boxes: boxes, Previews: &url.URL{Scheme: "http", Host: "localhost"}, Key: []byte("of previews"), Logger: quiet}),
		Artifacts: artifacts, Agents: []harness.Info{{Name: "pi", Title: "pi"}, {Name: "codex", Title: "Codex"}, {Name: "claude-code", Title: "Claude Code", Asks: true, Limits: "it is slow"}},
	}
	b.pusher, err = push.New(push.Config{DB: d.DB, Inboxes: services.Inboxes, DeviceKey: make([]byte, 32), VAPIDSeed: make([]byte, 32), URL: "https://arbe.example.com", Logger: quiet})
	must(t, err)
	b.pusher.Mail.Server = &url.URL{Scheme: "smtp", Host: "mail.example.com"}
	services.Pusher = b.pusher
	mux := http.NewServeMux()
	mux.Handle("/", rpc.Handler(services))
	mux.Handle(rpc.ArtifactPath, rpc.ArtifactBytes(services))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	server.Start()
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// person creates a person with an API key for all their houses.
func (b *bench) person(t testing.TB, name string) person {
	t.Helper()
	id, err := b.houses.CreatePerson(t.Context(), name)
	must(t, err)
	key, err := b.auth.ReplaceKey(t.Context(), id, "test")
	must(t, err)
	return person{Client: b.client(key), id: id, key: key}
}

// client returns a client with a credential.
func (b *bench) client(token string) *arbe.Client { return arbe.New(b.url, token) }

// houseKey creates a key of p that is limited to p's house.
func (p person) houseKey(t *testing.T) string {
	t.Helper()
	res, err := p.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: p.house.Id, Name: "limited"})
	must(t, err)
	return res.Key
}

func (b *bench) newHouse(t testing.TB, p person, name string) *arbev1.House {
	t.Helper()
	res, err := p.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: name})
	must(t, err)
	return res.House
}

// exec changes the database without row-level security.
func (b *bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := b.owner.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	authtest.Heard(t, b.owner, b.auth)
}

// ask reads one value without row-level security.
func ask[T any](t *testing.T, b *bench, question string, args ...any) T {
	t.Helper()
	rows, err := b.owner.Query(t.Context(), question, args...)
	must(t, err)
	answer, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	must(t, err)
	return answer
}

// thread creates a thread in p's house.
func (p person) thread(t *testing.T, with *arbev1.CreateThreadRequest) *arbev1.Thread {
	t.Helper()
	with.HouseId = p.house.Id
	res, err := p.Threads.CreateThread(t.Context(), with)
	must(t, err)
	return res.Thread
}

// say appends a chat.
func (p person) say(t *testing.T, thread, text string) *arbev1.Entry {
	t.Helper()
	res, err := p.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: thread, Type: "chat", Payload: chat(text)})
	must(t, err)
	return res.Entry
}

// log returns all entries of a short log.
func (p person) log(t *testing.T, thread string) []*arbev1.Entry {
	t.Helper()
	res, err := p.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: thread, Limit: 1000})
	must(t, err)
	return res.Entries
}

// run runs a command and waits for its result, which it returns as text.
func (p person) run(t *testing.T, thread, command string) string {
	t.Helper()
	said, err := p.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: thread, What: &arbev1.RunCommandRequest_Command{Command: command}})
	must(t, err)
	for event, err := range p.Tail(t.Context(), thread, said.Entry.Seq) {
		must(t, err)
		if e := event.GetEntry(); e.GetId() == said.ResultId {
			return e.Payload
		}
	}
	t.Fatal("the tail ended before the command")
	return ""
}

// refused asserts that a call failed with this code, that the message contains each of these texts, and that the error has a
// next step.
func refused(t *testing.T, err error, code connect.Code, says ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("it succeeded, want %v", code)
		return
	}
	if connect.CodeOf(err) != code {
		t.Errorf("the code is %v, want %v: %v", connect.CodeOf(err), code, err)
	}
	if strings.TrimSpace(arbe.Next(err)) == "" {
		t.Errorf("it does not say what to do next: %v", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
}

// shape returns an error's message without the ids in it.
func shape(err error) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(err.Error(), `"…"`)
}

func chat(text string) string {
	payload, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err)
	}
	return string(payload)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (next: %s)", err, arbe.Next(err))
	}
}

func digest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// logbook keeps what is logged.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// echo is a driver whose boxes print the commands that they should run.
type echo struct {
	sandbox.Driver // the methods that the services do not call
	made           atomic.Int64
	destroyed      sync.Map // the refs of boxes
}

// accountKey is the name of the secret that gives a house its own account at the provider of echo. goodKey is the key that
// the provider accepts.
const accountKey, goodKey = "ECHO_API_KEY", "key-of-the-account"

// account is echo in a house's own account.
type account struct {
	echo
	key string
}

func (a *account) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) {
	if a.key != goodKey {
		return nil, fault.New(fault.Precondition, "the provider refuses the key", "set another one")
	}
	return nil, nil
}

func (a *account) Close(context.Context) error { return nil }

func (e *echo) Probe(context.Context, string) (sandbox.Liveness, error) { return sandbox.Live, nil }

func (e *echo) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{Ports: true, SecretFiles: true}
}

func (e *echo) Asleep(context.Context, string) (bool, error) { return false, nil }

func (e *echo) Dial(context.Context, string, uint16) (sandbox.Conn, error) {
	return nil, sandbox.ErrNobodyListens
}

func (e *echo) Create(context.Context, sandbox.Spec) (string, error) {
	return fmt.Sprint("box-", e.made.Add(1)), nil
}

func (e *echo) Exec(_ context.Context, _ string, c sandbox.Command) (sandbox.Result, error) {
	_, err := io.WriteString(c.Stdout, strings.Join(c.Argv, " "))
	return sandbox.Result{}, err
}

func (e *echo) List(context.Context, sandbox.Labels) ([]sandbox.Box, error) { return nil, nil }

func (e *echo) Destroy(_ context.Context, ref string) error {
	e.destroyed.Store(ref, true)
	return nil
}
