package web_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// canary is a value that must not appear anywhere. second is another such value, the key of a provider.
const (
	canary = "kAnary-1b7f/4c+0d9e8&\"q"
	second = "sk-ant-CaNaRy-77aa1fe0b2"
)

// traces returns the forms in which both values could appear.
func traces() (all []string) {
	for _, v := range []string{canary, second} {
		all = append(all, v, strings.ReplaceAll(v, `"`, `\"`), strings.NewReplacer("&", `\u0026`, `"`, `\"`).Replace(v), strings.NewReplacer("&", "&amp;", `"`, "&#34;").Replace(v),
			url.QueryEscape(v), hex.EncodeToString([]byte(v)))
		for before := range 3 {
			form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + v))
			all = append(all, strings.TrimRight(form[4:len(form)-4], "="))
		}
	}
	return all
}

// silent fails if a text contains a canary.
func silent(t *testing.T, where, text string) {
	t.Helper()
	flat := strings.NewReplacer("\n", "", "\r", "").Replace(text)
	for _, trace := range traces() {
		if strings.Contains(flat, trace) {
			t.Errorf("%s has %s", where, trace)
		}
	}
}

// TestACanaryIsNowhere plants secrets as a person does and uses everything that could reveal them. It then looks for them in
// each page, answer, stream, table and line of the log.
func TestACanaryIsNowhere(t *testing.T) {
	t.Parallel()
	a := newInstallation(t)
	a.env = []string{"ARBE_LOG_LEVEL=debug", "ARBE_LOG_FORMAT=json", "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=", "ARBE_MODEL=", "ARBE_MODEL_PRIVATE_HOSTS=127.0.0.1"}
	a.start()
	api := a.client()
	link, err := api.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	owner := client{t: t, base: "http://" + a.addr}
	owner.session = sessionFrom(t, owner, "/login", url.Values{"token": {tokenOf(t, link.Path)}})
	houses, err := api.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := houses.Houses[0]
	home := "/houses/" + house.Id

	t.Run("the page says how to get a model, and a key is one paste away", func(t *testing.T) {
		owner := owner.in(t)
		_, page := owner.get(home + "/models")
		contains(t, page, "This house has no model yet", `type="password"`)
		res, _ := owner.post(home+"/models", url.Values{"secret": {"ANTHROPIC_API_KEY"}, "key": {" " + second + "\r\n"}, "skip_check": {"yes"}})
		want(t, res, http.StatusSeeOther, home+"/models?set=ANTHROPIC_API_KEY&untried=")
		_, page = owner.get(res.Header.Get("Location"))
		contains(t, page, "It was not tried. The bots of")
		_, page = owner.get(home + "/models")
		contains(t, page, "ANTHROPIC_API_KEY", "anthropic/claude-")
		lacks(t, page, "no model yet")
		silent(t, "the page", page)
		for form, where := range map[string]url.Values{
			"":         {"secret": {"ANTHROPIC_API_KEY"}, "key": {second + "\nand another line"}},
			"/servers": {"name": {"lab"}, "base_url": {"http://10.0.0.1/v1"}, "server_key": {canary}},
			"/default": {"model": {"claude"}},
		} {
			res, page := owner.post(home+"/models"+form, where)
			want(t, res, http.StatusBadRequest, "")
			silent(t, "the page of an error", page)
		}
		res, _ = owner.post(home+"/models/servers", url.Values{"name": {"lab-2"}, "base_url": {"https://models.example.com/v1"}, "server_key": {canary}, "dialect": {"messages"}, "skip_check": {"yes"}})
		want(t, res, http.StatusSeeOther, home+"/models?set=lab-2&untried=")
		res, _ = owner.post(home+"/models/default", url.Values{"model": {"lab-2/large"}})
		want(t, res, http.StatusSeeOther, home+"/models")
		_, page = owner.get(home + "/models")
		contains(t, page, "lab-2/large", "https://models.example.com/v1 · messages")
		// If a server refuses the key and repeats it, nothing changes. The form comes back without the key.
		refusing := modeltest.New(t, nil)
		refusing.Offer("another-key", "large", "small")
		res, page = owner.post(home+"/models/servers", url.Values{"name": {"lab-3"}, "base_url": {refusing.URL + "/v1"}, "server_key": {canary}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, "Lab-3 does not accept the key: Incorrect API key provided", "Add it without trying it")
		lacks(t, page, "--no-check", "skip_check,")
		silent(t, "the page of a wrong key", page)
		res, _ = owner.post(home+"/models/servers", url.Values{"name": {"lab-3"}, "base_url": {refusing.URL + "/v1"}, "server_key": {"another-key"}})
		want(t, res, http.StatusSeeOther, home+"/models?set=lab-3")
		_, page = owner.get(home + "/models?set=lab-3")
		contains(t, page, "lab-3 was tried: 2 models. The bots of", "large, small")
		res, page = owner.post(home+"/secrets", url.Values{"name": {"MODEL_LAB_3_KEY"}, "value": {canary}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, "Lab-3 does not accept the key", "Store it without trying it")
		silent(t, "the page of a wrong secret", page)
		res, page = owner.post(home+"/models/default", url.Values{"model": {"lab-3/larg"}})
		want(t, res, http.StatusBadRequest, "")
		lacks(t, page, "--no-check", "arbe model list")
		contains(t, page, "Lab-3 has no model", "large, small", "Choose it even though it is not listed")
		res, _ = owner.post(home+"/models/servers/lab-3/remove", nil)
		want(t, res, http.StatusSeeOther, home+"/models")
	})
	t.Run("a secret is set, listed and deleted, and says what uses it", func(t *testing.T) {
		owner := owner.in(t)
		res, _ := owner.post(home+"/secrets", url.Values{"name": {"CANARY"}, "value": {canary}})
		want(t, res, http.StatusSeeOther, home+"/secrets")
		for _, wrong := range []url.Values{{"name": {canary}, "value": {canary}}, {"name": {"ARBE_X"}, "value": {canary}}, {"name": {"X"}, "value": {canary + "\x00"}}, {"name": {"X"}, "value": {""}}} {
			res, page := owner.post(home+"/secrets", wrong)
			want(t, res, http.StatusBadRequest, "")
			if wrong.Get("name") != canary { // a typed name comes back, so that its author can correct it
				silent(t, "the page of an error", page)
			}
		}
		_, page := owner.get(home + "/secrets")
		contains(t, page, "CANARY", "MODEL_LAB_2_KEY", "Used by model endpoint lab-2, default model lab-2/large, bot @arbe", "never used")
		res, page = owner.post(home+"/secrets/MODEL_LAB_2_KEY/delete", nil)
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, page, "is used by model endpoint lab-2, default model lab-2/large, bot @arbe")
		res, _ = owner.post(home+"/models/servers/lab-2/remove", nil)
		want(t, res, http.StatusSeeOther, home+"/models")
		for range 2 { // sent twice
			res, _ = owner.post(home+"/secrets/MODEL_LAB_2_KEY/delete", nil)
			want(t, res, http.StatusSeeOther, home+"/secrets")
		}
	})

	made, err := api.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house.Id, Name: "canaries"})
	if err != nil {
		t.Fatal(err)
	}
	thread := made.Thread.Id
	_, missing := exec.LookPath("runc")
	sandboxes := missing == nil && os.Getuid() == 0
	if sandboxes {
		// Small, because other tests use sandboxes on the same machine.
		if _, err := api.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{
			Id: house.DefaultEnvironmentId, Config: &arbev1.EnvironmentConfig{
				Limits: &arbev1.Limits{MemoryMb: 256, DiskMb: 256}, Secrets: []*arbev1.SecretBinding{{Name: "CANARY"}, {Name: "ANTHROPIC_API_KEY"}},
			},
		}); err != nil {
			t.Fatal(err)
		}
		// The command has them reversed, because commands themselves are not redacted.
		turned := base64.StdEncoding.EncodeToString([]byte(reversed(canary + "\n" + second)))
		command, err := api.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: "!echo " + turned + " | base64 -d | rev | tac > key; cat key; cat key >&2; base64 key; " +
			"for i in 1 2 3 4 5; do head -c 11 key; tail -c +12 key; done; env; od -An -v -tx1 key; seq 100000; cat key; exit 1"})
		if err != nil {
			t.Fatal(err)
		}
		said := waitFor(t, api, thread, entry.ResultID(command.Entry.Id))
		if !strings.Contains(said, "xxxxxxxx") || !strings.Contains(said, "99999") {
			t.Errorf("the command did not say it: %.500s", said)
		}
	}
	t.Run("a bot whose model knows them says everything but them", func(t *testing.T) {
		owner := owner.in(t)
		both := canary + ", " + canary
		models := modeltest.New(t, func(q *modeltest.Request) modeltest.Reply {
			switch {
			case strings.Contains(q.Asked(), "fail"):
				return modeltest.Reply{Status: 401, Error: modeltest.Error{Message: "the key " + both + " is wrong"}}
			case q.Last().Role == "tool":
				return modeltest.Reply{Thinking: "It was " + both, Text: "They are " + both + "."}
			}
			arguments, _ := json.Marshal(map[string]string{"name": both})
			return modeltest.Reply{Thinking: "I know " + both, Text: "Look: " + both + " ", Calls: []modeltest.Call{{Name: "create_thread", Arguments: string(arguments)}}}
		})
		res, _ := owner.post(home+"/models/servers", url.Values{"name": {"echo"}, "base_url": {models.URL + "/v1"}, "server_key": {canary}, "dialect": {""}})
		want(t, res, http.StatusSeeOther, home+"/models?set=echo")
		res, _ = owner.post(home+"/models/default", url.Values{"model": {"echo/any"}})
		want(t, res, http.StatusSeeOther, home+"/models")
		for _, c := range []struct{ ask, end string }{{"tell", `"turn":{`}, {"fail", "bad_key"}} {
			asked, err := api.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: "@arbe " + c.ask})
			if err != nil {
				t.Fatal(err)
			}
			said := waitUntil(t, api, thread, func(e *arbev1.Entry) bool { return e.Seq > asked.Entry.Seq && strings.Contains(e.Payload, c.end) })
			if !strings.Contains(said, "xxxxxxxx") && c.ask == "tell" {
				t.Errorf("the bot did not say it: %.2000s", said)
			}
			silent(t, "what followers of the thread get", said)
		}
	})
	// The file key has both values. Each tool shows it in its own way: as a file, as the diff of an edit, as growing output,
	// in a search, in a request for approval, and in what the model reads of these.
	t.Run("nor do the tools that read it show it to the model or to people", func(t *testing.T) {
		if !sandboxes {
			t.Skip("there are no sandboxes here")
		}
		owner := owner.in(t)
		steps := []modeltest.Call{
			{Name: "read_file", Arguments: `{"path":"key"}`},
			{Name: "search_files", Arguments: `{"pattern":".","path":"key"}`},
			{Name: "run_command", Arguments: `{"command":"cat key; cat key >&2; echo plain >>key; sleep 1000","background":true}`},
			{Name: "read_command", Arguments: `{"command_id":"COMMAND","wait_seconds":3}`},
			{Name: "edit_file", Arguments: `{"path":"key","old_text":"plain","new_text":"changed"}`},
			{Name: "write_file", Arguments: `{"path":"copy","content":` + strconv.Quote(canary) + `}`},
			{Name: "stop_command", Arguments: `{"command_id":"COMMAND"}`},
			{Name: "search_entries", Arguments: `{"query":"cat"}`},
			{Name: "read_thread", Arguments: `{}`},
			{Name: "say", Arguments: `{"thread_id":"` + house.PrimaryThreadId + `","text":"all done"}`},
			{Name: "say", Arguments: `{"thread_id":"` + house.PrimaryThreadId + `","text":` + strconv.Quote(canary) + `}`},
		}
		results := map[string]string{} // the results of the last call of each tool
		models := modeltest.New(t, func(q *modeltest.Request) modeltest.Reply {
			silent(t, "what a model is asked", string(q.Body))
			n := q.Seen
			if n > 0 {
				results[steps[n-1].Name] = q.Last().Text
			}
			if n == len(steps) {
				return modeltest.Reply{Text: "All is done."}
			}
			call := steps[n]
			_, id, _ := strings.Cut(results["run_command"], "as the command ")
			id, _, _ = strings.Cut(id, ";")
			call.Arguments = strings.Replace(call.Arguments, "COMMAND", id, 1)
			return modeltest.Reply{Calls: []modeltest.Call{call}}
		})
		res, _ := owner.post(home+"/models/servers", url.Values{"name": {"works"}, "base_url": {models.URL + "/v1"}, "server_key": {canary}})
		want(t, res, http.StatusSeeOther, home+"/models?set=works")
		res, _ = owner.post(home+"/models/default", url.Values{"model": {"works/any"}})
		want(t, res, http.StatusSeeOther, home+"/models")
		res, _ = owner.post(home+"/ask", url.Values{"ask": {"say"}})
		want(t, res, http.StatusSeeOther, home+"/bots#approval")
		asked, err := api.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: "@arbe work"})
		if err != nil {
			t.Fatal(err)
		}
		waitUntil(t, api, thread, func(e *arbev1.Entry) bool {
			return e.Seq > asked.Entry.Seq && e.Type == (entry.PermissionAsked{}).Type()
		})
		open, err := api.Approvals.ListApprovals(t.Context(), &arbev1.ListApprovalsRequest{HouseId: house.Id})
		if err != nil || len(open.Approvals) != 1 {
			t.Fatalf("these are asked: %v: %v", open, err)
		}
		silent(t, "the request for approval", open.String())
		res, _ = owner.post("/threads/"+thread+"/approvals/"+open.Approvals[0].Id, url.Values{"verdict": {"approve"}})
		want(t, res, http.StatusSeeOther, "/threads/"+thread)
		said := waitUntil(t, api, thread, func(e *arbev1.Entry) bool {
			return e.Seq > asked.Entry.Seq && strings.Contains(e.Payload, "All is done.")
		})
		silent(t, "what followers of the thread get", said)
		for tool, shows := range map[string]string{"read_file": "xxxxxxxx", "search_files": "xxxxxxxx", "stop_command": "xxxxxxxx", "edit_file": "edited",
			"write_file": "the secret MODEL_WORKS_KEY", "say": "the secret MODEL_WORKS_KEY"} {
			if !strings.Contains(results[tool], shows) {
				t.Errorf("%s returned %q, want it to have %s", tool, results[tool], shows)
			}
		}
	})
	t.Run("pages, answers and streams", func(t *testing.T) {
		owner := owner.in(t)
		for _, path := range []string{home, home + "/members", home + "/bots", home + "/keys", home + "/models", home + "/secrets", home + "/environments", "/threads/" + thread,
			"/threads/" + thread + "/entries?before=100", "/threads/" + house.PrimaryThreadId} {
			_, page := owner.get(path)
			silent(t, path, page)
		}
		for seq := range 45 {
			for _, end := range []string{"", "/raw", "/output"} {
				path := "/threads/" + thread + "/entries/" + strconv.Itoa(seq) + end
				_, page := owner.get(path)
				silent(t, path, page)
			}
		}
		secrets, err := api.Secrets.ListSecrets(t.Context(), &arbev1.ListSecretsRequest{HouseId: house.Id})
		if err != nil || len(secrets.Secrets) < 3 {
			t.Errorf("the secrets are %v: %v", secrets, err)
		}
		models, err := api.Models.ListModels(t.Context(), &arbev1.ListModelsRequest{HouseId: house.Id})
		if err != nil || len(models.Endpoints) == 0 {
			t.Errorf("the models are %v: %v", models, err)
		}
		silent(t, "the lists", secrets.String()+models.String())
		artifacts, err := api.Artifacts.ListArtifacts(t.Context(), &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: thread}})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range artifacts.Artifacts {
			content, err := api.OpenArtifact(t.Context(), one.Id, 0)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(content)
			content.Close()
			if err != nil || len(text) < 500_000 {
				t.Errorf("the artifact has %d bytes: %v", len(text), err)
			}
			silent(t, "the artifact", string(text))
		}
		silent(t, "the stream", a.stream(t, thread))
	})
	t.Run("tables", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, server.LocalDatabaseURL(a.dir))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for _, trace := range traces() {
			if where := dbtest.Grep(t, conn, trace); len(where) > 0 {
				t.Errorf("%s is in %v", trace, where)
			}
		}
	})
	t.Run("the log, of a server that was stopped", func(t *testing.T) {
		if err := a.server.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = a.server.Wait()
		if !strings.Contains(a.said.String(), `"level":"DEBUG"`) {
			t.Error("there is no log")
		}
		silent(t, "the log", a.said.String())
	})
}

func reversed(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		b := []byte(line)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		lines = append([]string{string(b)}, lines...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// waitFor waits for an entry and returns everything that a follower of the thread received by then, including live output.
func waitFor(t *testing.T, api *arbe.Client, thread, id string) string {
	t.Helper()
	return waitUntil(t, api, thread, func(e *arbev1.Entry) bool { return e.Id == id })
}

// waitUntil is like waitFor, for the first entry that matches.
func waitUntil(t *testing.T, api *arbe.Client, thread string, is func(*arbev1.Entry) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var got strings.Builder
	for event, err := range api.Tail(ctx, thread, 0) {
		if err != nil {
			t.Fatal(err)
		}
		silent(t, "an event", event.String())
		if d := event.GetDelta(); d != nil {
			got.Write(d.Data)
		}
		if e := event.GetEntry(); e != nil {
			got.WriteString(e.Payload)
			if is(e) {
				break
			}
		}
	}
	silent(t, "what a follower got", got.String())
	return got.String()
}

// stream returns the text that the stream door serves for a thread.
func (a *arbeInstallation) stream(t *testing.T, thread string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.addr+"/api/stream/arbe-thread-"+thread+"?offset=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+a.token(t))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "command_result") {
		t.Fatalf("the stream is %s %.300s: %v", res.Status, text, err)
	}
	return string(text)
}
