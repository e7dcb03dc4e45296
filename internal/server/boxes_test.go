package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadToken creates a token for a thread.
func threadToken(t *testing.T, c *arbe.Client, thread string) string {
	t.Helper()
	made, err := c.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: thread})
	if err != nil {
		t.Fatal(err)
	}
	return made.Token.Token
}

// With a thread token of their house, programs in a sandbox reach the streams of the server that runs it, and nothing else.
func TestTheDoorsInsideASandbox(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.DatabaseURL, cfg.Local.Grace = dbtest.Migrated(t), 2*time.Minute
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, cfg)
	thread := newThread(t, c)
	if got := output(t, cfg, thread, "ls /etc/resolv.conf && grep -c nameserver /etc/resolv.conf; true"); !strings.HasSuffix(got, "1\n") {
		stop(t, s)
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	ours := threadToken(t, c, thread)
	made, err := c.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: "Another"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: made.House.Id})
	if err != nil {
		t.Fatal(err)
	}
	theirs := threadToken(t, c, other.Thread.Id)
	stream := func(id string) string { return "/api/stream/arbe-thread-" + id }
	// ask makes a request in the sandbox, and returns the status and the text of its answer.
	ask := func(credential, path, more string) string {
		t.Helper()
		return output(t, cfg, thread, fmt.Sprintf("curl -sS -m 30 -w ' %%{http_code}' -H '%s' %s 'http://arbe.internal%s'", credential, more, path))
	}
	for name, call := range map[string]struct{ credential, path, more, want string }{
		"reads its thread":                  {"Authorization: Bearer " + ours, stream(thread) + "?offset=-1", "-o /dev/null", " 200"},
		"reads it by the other path":        {"Authorization: Bearer " + ours, strings.Replace(stream(thread), "/api/", "/v1/", 1), "-o /dev/null", " 200"},
		"with another thread's token":       {"Authorization: Bearer " + ours, stream(other.Thread.Id), "", "is valid only for thread"},
		"with another house's token":        {"Authorization: Bearer " + theirs, stream(other.Thread.Id), "", "only thread tokens of its house"},
		"with an API key":                   {"Authorization: Bearer " + login(t, cfg).Token, stream(thread), "", "only thread tokens of its house"},
		"with a cookie":                     {"Cookie: arbe_session=" + ours, stream(thread), "", "no bearer token"},
		"with nothing":                      {"X: y", stream(thread), "", "no bearer token"},
		"a browser's question":              {"X: y", stream(thread), "-X OPTIONS", "no bearer token"},
		"a service":                         {"Authorization: Bearer " + ours, "/arbe.v1.AgentService/WhoAmI", "--json {}", "reach only the streams and the models"},
		"a page":                            {"Authorization: Bearer " + ours, "/login", "", "reach only the streams and the models"},
		"health":                            {"Authorization: Bearer " + ours, "/healthz", "", "reach only the streams and the models"},
		"a model, with a token of no run":   {"X-Api-Key: " + ours, "/api/model/anthropic/v1/messages", "--json {}", "lacks the scope model:call"},
		"a model, of another house":         {"X-Goog-Api-Key: " + theirs, "/api/model/google/v1beta/models", "", "only thread tokens of its house"},
		"a way around":                      {"Authorization: Bearer " + ours, "/api/stream/../../healthz", "--path-as-is", "not a name for a stream"},
		"the server's public port, by name": {"Authorization: Bearer " + ours, stream(thread), "--connect-to ::localhost:" + s.URL()[strings.LastIndex(s.URL(), ":")+1:], "Failed to connect"},
	} {
		if got := ask(call.credential, call.path, call.more); !strings.Contains(got, call.want) {
			t.Errorf("%s: it answers %q, want %q", name, got, call.want)
		}
	}
	says := func(id string) string {
		return fmt.Sprintf(`curl -sS -m 30 -w ' %%{http_code}' -H 'Authorization: Bearer %s' --json '{"id": "%s", "payload": {"type": "chat", "text": "%[2]s"}}' http://arbe.internal%s`, ours, id, stream(thread))
	}
	// Messages sent while a program follows arrive immediately, before the answer ends. The last chat ends curl.
	got := output(t, cfg, thread, fmt.Sprintf("curl -sSN -m 30 -H 'Authorization: Bearer %s' 'http://arbe.internal%s?offset=now&live=sse' | { grep -m1 control > /dev/null; %s > /dev/null; grep -m1 -o follow-me; exec < /dev/null; %s > /dev/null; }",
		ours, stream(thread), says("follow-me"), says("end")))
	if !strings.Contains(got, "follow-me") {
		t.Errorf("a program that follows its thread gets %q", got)
	}

	output(t, cfg, thread, "nohup sleep 1000 >/dev/null 2>&1 & echo $! > pid")
	stop(t, s)
	start(t, cfg)
	if got := output(t, cfg, thread, "kill $(cat pid) && "+says("after")); !strings.HasSuffix(got, " 204") && !strings.HasSuffix(got, " 200") {
		t.Errorf("after a restart of the server, a program in a sandbox that went on gets %q", got)
	}
}

// A coding agent in a sandbox asks a model of its house with the token of its run. The run may belong to a thread other than
// the sandbox's. The key stays outside.
func TestAModelIsAskedFromASandbox(t *testing.T) {
	t.Parallel()
	models := modeltest.New(t, nil)
	cfg := settings(t)
	cfg.DatabaseURL = dbtest.Migrated(t)
	var err error
	if cfg.SecretKey, err = secret.NewKey(); err != nil {
		t.Fatal(err)
	}
	if cfg.ModelHosts, err = outbound.ParseHosts(strings.TrimPrefix(models.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
	c := client(t, cfg)
	thread, driven := newThread(t, c), newThread(t, c)
	if got := output(t, cfg, thread, "grep -c nameserver /etc/resolv.conf"); got != "1\n" {
		t.Skip("this machine cannot redirect the connections of sandboxes")
	}
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	const key = "sk-of-the-house-0123456789"
	if _, err := c.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "scripted", BaseUrl: models.URL + "/v1", Key: key}); err != nil {
		t.Fatal(err)
	}
	token := runToken(t, cfg, house, driven)
	got := output(t, cfg, thread, fmt.Sprintf(`curl -sSN -m 30 -H 'Authorization: Bearer %s' --json '{"model":"fake-answer","stream":true,"messages":[{"role":"user","content":"out of the box"}]}' http://arbe.internal/api/model/scripted/v1/chat/completions; env`, token))
	if !strings.Contains(got, `"content":"out "`) || !strings.Contains(got, "data: [DONE]") || strings.Contains(got, key) {
		t.Errorf("the sandbox printed %q", got)
	}
	if asked := models.Requests(); len(asked) != 1 || asked[0].Key != key {
		t.Errorf("the model was asked %d times", len(asked))
	}
}

// runToken makes a coding agent drive a thread, and returns the token of its first run.
func runToken(t testing.TB, cfg server.Config, house, thread string) string {
	t.Helper()
	owner, err := pgx.Connect(t.Context(), cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(context.Background())
	var bot string
	err = owner.QueryRow(t.Context(), `with b as (select a.id from agents a join members m on m.agent_id = a.id where m.house_id = $1 and a.kind = 'bot' limit 1)
		update threads set agent_id = b.id, status = 'running', run_epoch = 1 from b where threads.id = $2 returning b.id::text`, house, thread).Scan(&bot)
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := secret.NewSealer(cfg.SecretKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), cfg.DatabaseURL, db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	made, err := auth.New(auth.Config{DB: d, Sealer: sealer}).CreateRunToken(t.Context(), house, thread, bot, 1)
	if err != nil {
		t.Fatal(err)
	}
	return made.Token
}
