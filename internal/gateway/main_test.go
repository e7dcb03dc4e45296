package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/gateway"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/turn"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// The keys of the installation, which no agent may see.
const anthropicKey, openaiKey, googleKey = "sk-ant-installation-0123456789", "sk-openai-installation-0123456789", "AIza-installation-0123456789"

// priced are models with a known price, by dialect.
var priced = map[model.Dialect]string{model.Messages: "anthropic/claude-sonnet-4-6", model.Chat: "openai/gpt-4.1", model.Responses: "openai/gpt-4.1", model.Gemini: "google/gemini-2.5-pro"}

// bench is a gateway with one house, whose installation's providers are all one scripted server, and a run.
type bench struct {
	testing.TB
	db        *db.DB
	owner     *pgx.Conn
	auth      *auth.Auth
	secrets   *secret.Secrets
	models    *model.Houses
	providers *modeltest.Server
	// proxy is the gateway's way to the database, if it has one of its own.
	proxy *dbtest.Proxy
	url   string

	house, person, bot, thread string
	token                      string
}

type options struct {
	script modeltest.Script
	// provider replaces the scripted server.
	provider http.Handler
	limits   turn.Limits
	roots    turn.RootLimits
	budget   turn.Budget
	// begins is how long a provider may take to begin an answer, and stalls how long it may be silent within it; 0 is the default.
	begins, stalls time.Duration
	// apart gives the gateway's own transactions connections of their own, through a proxy.
	apart bool
}

func setup(t testing.TB, o options) *bench {
	t.Helper()
	d := dbtest.Reuse(t, 10)
	b := &bench{TB: t, db: d.DB, owner: d.Owner(t), auth: auth.New(auth.Config{DB: d.DB, Sealer: d.Sealer}), providers: modeltest.New(t, o.script)}
	at := b.providers.URL
	if o.provider != nil {
		s := httptest.NewServer(o.provider)
		t.Cleanup(s.Close)
		at = s.URL
	}
	variables := map[string]string{
		"ANTHROPIC_API_KEY": anthropicKey, "ANTHROPIC_BASE_URL": at, "OPENAI_API_KEY": openaiKey, "OPENAI_BASE_URL": at + "/v1",
		"GEMINI_API_KEY": googleKey, "GOOGLE_GEMINI_BASE_URL": at,
	}
	installation := model.NewInstallation(func(name string) string { return variables[name] }, func(context.Context, model.Endpoint) (model.Listing, error) {
		return model.Listing{}, nil
	})
	b.secrets = secret.New(d.DB, d.Sealer, installation.SecretUses, nil)
	b.models = model.NewHouses(d.DB, b.secrets, installation, b.providers.Asker())
	must(t, b.owner.QueryRow(t.Context(), `
		with h as (insert into houses (name) values ('Home') returning id),
		     p as (insert into agents (kind, name) values ('human', 'Ada') returning id),
		     b as (insert into agents (kind, name, runtime) values ('bot', 'Pi', 'pi') returning id),
		     m as (insert into members (house_id, agent_id, role) select h.id, p.id, 'owner' from h, p union all select h.id, b.id, 'member' from h, b)
		select h.id, p.id::text, b.id::text from h, p, b`).Scan(&b.house, &b.person, &b.bot))
	must1(b.owner.Exec(t.Context(), "update houses set belongs_to = $1 where id = $2", b.person, b.house))(t)
	b.thread = b.running("")
	b.token = b.tokenOf(b.thread)
	own := d.DB
	if o.apart {
		b.proxy = dbtest.NewProxy(t, d.ServerURL)
		var err error
		own, err = db.Open(t.Context(), b.proxy.URL, db.Options{MaxConns: 2})
		must(t, err)
		t.Cleanup(own.Close)
	}
	g := gateway.New(gateway.Config{
		DB: own, Authorize: gateway.Runs(b.auth), Models: b.models, Client: &model.Client{HeaderTimeout: o.begins, IdleTimeout: o.stalls}, Roots: o.roots, Budget: o.budget, Logger: slog.New(slog.DiscardHandler),
		Bot: func(context.Context, db.Scope, string) (turn.Bot, error) {
			return turn.Bot{Handle: "pi", Limits: o.limits}, nil
		},
	})
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must1[V any](_ V, err error) func(testing.TB) {
	return func(t testing.TB) { t.Helper(); must(t, err) }
}

// running creates a thread in which the bot's first run is running, with a root.
func (b *bench) running(root string) (thread string) {
	b.Helper()
	must(b, b.owner.QueryRow(b.Context(), `
		with id as (select generate_short_id() as id), s as (insert into streams (house_id, name) select $1, 'arbe-thread-' || id from id)
		insert into threads (id, house_id, stream_id, agent_id, status, run_epoch, root) select id, $1, 'arbe-thread-' || id, $2, 'running', 1, nullif($3, '') from id
		returning id`, b.house, b.bot, root).Scan(&thread))
	return thread
}

func (b *bench) tokenOf(thread string) string {
	b.Helper()
	made, err := b.auth.CreateRunToken(b.Context(), b.house, thread, b.bot, 1)
	must(b, err)
	return made.Token
}

// usage returns what the run used.
func (b *bench) usage() (u gateway.Usage) {
	b.Helper()
	must(b, b.db.In(b.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) error {
		all, err := gateway.UsageTx(b.Context(), tx, b.house, b.thread, 1)
		u = all[1]
		return err
	}))
	return u
}

// tree returns what the run's thread and all below it cost.
func (b *bench) tree() (micros int64, unknown bool) {
	b.Helper()
	must(b, b.db.In(b.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
		micros, unknown, err = turn.TreeCostTx(b.Context(), tx, b.house, b.thread)
		return err
	}))
	return micros, unknown
}

// last returns the last call of the run.
func (b *bench) last() (last *gateway.Call) {
	b.Helper()
	must(b, b.db.In(b.Context(), db.Scope{House: b.house}, func(tx pgx.Tx) (err error) {
		last, err = gateway.LastTx(b.Context(), tx, b.house, b.thread, 1, "")
		return err
	}))
	return last
}

// await waits until this many calls are recorded, because an agent that leaves cannot know when its call is.
func (b *bench) await(calls int64) (u gateway.Usage) {
	b.Helper()
	for deadline := time.Now().Add(patience); u.Calls < calls && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		u = b.usage()
	}
	return u
}

// request returns an agent's request.
func request(d model.Dialect, name, text string) (path, body string) {
	_, id, _ := strings.Cut(name, "/")
	return map[model.Dialect]string{model.Messages: "/v1/messages?beta=true", model.Chat: "/v1/chat/completions", model.Responses: "/v1/responses",
			model.Gemini: "/v1beta/models/" + id + ":streamGenerateContent?alt=sse"}[d],
		map[model.Dialect]string{
			model.Messages:  fmt.Sprintf(`{"stream":true,"max_tokens":100,"messages":[{"role":"user","content":%q}],"model":%q}`, text, id),
			model.Chat:      fmt.Sprintf(`{"model":%q,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":%q}]}`, id, text),
			model.Responses: fmt.Sprintf(`{"model":%q,"stream":true,"store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}]}`, id, text),
			model.Gemini:    fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, text),
		}[d]
}

// header returns the header in which agents send their key in a dialect.
func header(d model.Dialect, key string) (name, value string) {
	switch d {
	case model.Messages:
		return "X-Api-Key", key
	case model.Gemini:
		return "X-Goog-Api-Key", key
	}
	return "Authorization", "Bearer " + key
}

// send sends a request as an agent does. change may change it.
func (b *bench) send(d model.Dialect, name, text string, change ...func(*http.Request)) *http.Response {
	b.Helper()
	path, body := request(d, name, text)
	endpoint, _, _ := strings.Cut(name, "/")
	return b.post(d, "/api/model/"+endpoint+path, body, change...)
}

func (b *bench) post(d model.Dialect, path, body string, change ...func(*http.Request)) *http.Response {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	b.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+path, strings.NewReader(body))
	must(b, err)
	key, value := header(d, b.token)
	r.Header.Set(key, value)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	must(b, err)
	b.Cleanup(func() { res.Body.Close() })
	return res
}

// read reads an answer to its end.
func read(t testing.TB, res *http.Response) (string, error) {
	t.Helper()
	var text bytes.Buffer
	_, err := io.Copy(&text, res.Body)
	return text.String(), err
}
