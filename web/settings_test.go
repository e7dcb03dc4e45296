package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestTheSettingsOfAHouse uses the pages without a script, on a whole server, as an owner and as a person who joins.
func TestTheSettingsOfAHouse(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	api := a.client()
	link, err := api.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	anyone := client{t: t, base: "http://" + a.addr}
	owner := anyone
	owner.session = sessionFrom(t, anyone, "/login", url.Values{"token": {tokenOf(t, link.Path)}})
	houses, err := api.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	home := "/houses/" + houses.Houses[0].Id

	// invite makes an invite, and returns the path of its page.
	invite := func(t *testing.T, note, role string) string {
		t.Helper()
		res, page := owner.in(t).post(home+"/invites", url.Values{"note": {note}, "role": {role}, "days": {"7"}}, "Origin", owner.base)
		want(t, res, http.StatusOK, "")
		if res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("browsers may cache a page with a secret link: Cache-Control is %s", res.Header.Get("Cache-Control"))
		}
		found := regexp.MustCompile(`value="` + regexp.QuoteMeta(owner.base) + `(/join\?token=[a-z0-9]+)"`).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("there is no link: %s", page)
		}
		return found[1]
	}

	t.Run("sandboxes are listed with their threads, and saved and deleted", func(t *testing.T) {
		owner := owner.in(t)
		_, page := owner.get(home + "/sandboxes")
		contains(t, page, "No sandboxes now.")
		_, err := api.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{
			Id: houses.Houses[0].DefaultEnvironmentId, Config: &arbev1.EnvironmentConfig{Limits: &arbev1.Limits{MemoryMb: 256, DiskMb: 256}},
		})
		if err != nil {
			t.Fatal(err)
		}
		made, err := api.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: houses.Houses[0].Id, Name: "Fix <b>it</b>"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Run(t.Context(), &arbev1.RunCommandRequest{ThreadId: made.Thread.Id, What: &arbev1.RunCommandRequest_Command{Command: "echo new > new"}}); err != nil {
			t.Fatal(err)
		}
		_, page = owner.get(home + "/sandboxes")
		contains(t, page, ">ready</span>", "Fix &lt;b&gt;it&lt;/b&gt;</a>", "/threads/"+made.Thread.Id)
		box := regexp.MustCompile(`/sandboxes/[a-z0-9]{12}`).FindString(page)
		_, page = owner.get(box)
		if !regexp.MustCompile(`· ran (under 1 s|\d+ (s|min))`).MatchString(page) || strings.Contains(page, "per hour of running") {
			t.Errorf("the page of a sandbox on this machine does not say how long it ran, or says a price: %s", page)
		}
		contains(t, page, "How it was built", ">create</span>", "Nothing is saved yet.", "Save and delete")
		res, _ := owner.post(home+"/sandboxes/reconcile", nil, "Origin", owner.base)
		want(t, res, http.StatusSeeOther, home+"/sandboxes?gone=0&unknown=0")
		_, page = owner.get(res.Header.Get("Location"))
		contains(t, page, "All of them exist.")
		res, _ = owner.post(box+"/delete", nil, "Origin", owner.base)
		want(t, res, http.StatusSeeOther, home+"/sandboxes")
		_, page = owner.get(home + "/sandboxes")
		contains(t, page, "No sandboxes now.")
		_, page = owner.get(box)
		contains(t, page, ">deleted</span>", "1 changed file")
	})
	t.Run("no server with models gets the key of another one", func(t *testing.T) {
		owner := owner.in(t)
		add := func(name, address, key string, status int) {
			t.Helper()
			res, _ := owner.post(home+"/models/servers", url.Values{"name": {name}, "base_url": {address}, "server_key": {key}, "skip_check": {"yes"}})
			if res.StatusCode != status {
				t.Errorf("adding %s at %s: %s", name, address, res.Status)
			}
		}
		// now returns a server's secret, the time when it was set, and what is wrong with the server.
		now := func(name string) (secret, set, problem string) {
			t.Helper()
			models, err := api.Models.ListModels(t.Context(), &arbev1.ListModelsRequest{HouseId: houses.Houses[0].Id})
			if err != nil {
				t.Fatal(err)
			}
			secrets, err := api.Secrets.ListSecrets(t.Context(), &arbev1.ListSecretsRequest{HouseId: houses.Houses[0].Id})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range models.Endpoints {
				if e.Own && e.Name == name {
					secret, problem = e.SecretName, e.Problem
				}
			}
			for _, s := range secrets.Secrets {
				if s.Name == secret {
					set = s.SetAt.AsTime().String()
				}
			}
			return secret, set, problem
		}
		add("my-lab", "https://one.example.com/v1", "key-of-the-first", http.StatusSeeOther)
		first, set, _ := now("my-lab")
		add("my_lab", "https://two.example.com/v1", "key-of-the-second", http.StatusSeeOther)
		if second, _, problem := now("my_lab"); second == first || problem != "" {
			t.Errorf("both use %s (%s)", second, problem)
		}
		if still, at, _ := now("my-lab"); still != first || at != set {
			t.Errorf("the first one's key was replaced: %s of %s, and before %s of %s", still, at, first, set)
		}
		// A new key at the same address replaces the old one.
		add("my-lab", "https://one.example.com/v1", "its-new-key", http.StatusSeeOther)
		same, later, _ := now("my-lab")
		if same != first || later == set {
			t.Errorf("the new key is %s of %s, the old one was %s of %s", same, later, first, set)
		}
		// The server moves only with a new key.
		add("my-lab", "https://other.example.com/v1", "no\x00key", http.StatusBadRequest)
		if still, at, problem := now("my-lab"); still != first || at != later || problem != "" {
			t.Errorf("with a key that was refused it has %s of %s (%q)", still, at, problem)
		}
		add("my-lab", "https://other.example.com/v1", "key-of-the-other", http.StatusSeeOther)
		if moved, at, problem := now("my-lab"); moved == first || at == "" || problem != "" {
			t.Errorf("it has %s of %s (%q)", moved, at, problem)
		}
		for _, name := range []string{"my-lab", "my_lab"} {
			res, _ := owner.post(home+"/models/servers/"+name+"/remove", nil)
			want(t, res, http.StatusSeeOther, home+"/models")
		}
		if left, err := api.Secrets.ListSecrets(t.Context(), &arbev1.ListSecretsRequest{HouseId: houses.Houses[0].Id}); err != nil || len(left.Secrets) != 0 {
			t.Errorf("these secrets are left: %v, %v", left, err)
		}
	})

	t.Run("the link of an invite asks, and joins with the name that is given", func(t *testing.T) {
		owner, anyone := owner.in(t), anyone.in(t)
		link := invite(t, "<b>Grace</b> from work", "member")
		_, page := owner.get(home + "/members")
		contains(t, page, "&lt;b&gt;Grace&lt;/b&gt; from work", "Pending invites")
		lacks(t, page, tokenOf(t, link))

		for range 2 { // looking at the page does not use up the link
			res, page := anyone.get(link)
			want(t, res, http.StatusOK, "")
			contains(t, page, "Join Home?", "as a member", `name="name"`)
			if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "strict-origin" {
				t.Errorf("the token may leak: the headers are %v", res.Header)
			}
		}
		form := url.Values{"token": {tokenOf(t, link)}, "as": {""}, "name": {" "}}
		res, page := anyone.post("/join", form)
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, `aria-invalid="true"`)
		form.Set("name", "Grace")
		grace := anyone
		grace.session = sessionFrom(t, anyone, "/join", form)
		_, page = grace.get(home + "/members")
		contains(t, page, "Grace", "Leave")
		lacks(t, page, "Invite a person", "Pending invites", "Make an owner")

		res, page = anyone.get(link)
		want(t, res, http.StatusNotFound, "")
		contains(t, page, "This invite was already used.")
	})
	t.Run("a link that nobody made says nothing of any house", func(t *testing.T) {
		for _, path := range []string{"/join", "/join?token=", "/join?token=" + houses.Houses[0].Id, "/join?token=" + strings.Repeat("x", 300)} {
			res, page := anyone.in(t).get(path)
			want(t, res, http.StatusNotFound, "")
			lacks(t, page, "Home</")
		}
	})
	t.Run("a person who is logged in joins as who they are, if they still are", func(t *testing.T) {
		link := invite(t, "", "owner")
		res, page := owner.in(t).get(link)
		want(t, res, http.StatusOK, "")
		contains(t, page, "Join as ")
		lacks(t, page, `name="name"`)
		// Somebody has logged in since the page was shown, so it asks again, and nobody has joined.
		res, page = owner.in(t).post("/join", url.Values{"token": {tokenOf(t, link)}, "as": {""}, "name": {"Eve"}})
		want(t, res, http.StatusOK, "")
		contains(t, page, "Join as ")
	})
	t.Run("another site cannot make anybody join or invite", func(t *testing.T) {
		link := invite(t, "", "member")
		for path, form := range map[string]url.Values{"/join": {"token": {tokenOf(t, link)}, "name": {"Eve"}}, home + "/invites": {"role": {"owner"}}} {
			res, _ := owner.in(t).post(path, form, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
			want(t, res, http.StatusForbidden, "")
		}
	})
	t.Run("an owner changes a role, removes a member, and stays the last owner", func(t *testing.T) {
		owner, joiner := owner.in(t), anyone.in(t)
		joiner.session = sessionFrom(t, joiner, "/join", url.Values{"token": {tokenOf(t, invite(t, "", "member"))}, "name": {"Linus"}})
		id := memberID(t, owner, home, "Linus")
		res, _ := owner.post(home+"/members/"+id, url.Values{"role": {"owner"}})
		want(t, res, http.StatusSeeOther, home+"/members")
		res, page := joiner.get(home + "/members")
		want(t, res, http.StatusOK, "")
		contains(t, page, "Invite a person")
		res, _ = owner.post(home+"/members/"+id+"/remove", url.Values{"from": {"members"}})
		want(t, res, http.StatusSeeOther, home+"/members")
		res, _ = joiner.get(home + "/members")
		want(t, res, http.StatusNotFound, "")
		res, page = owner.post(home+"/members/"+memberID(t, owner, home, ">you<")+"/remove", nil)
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, page, "This is the last owner of the house.")
	})
	t.Run("a bot is added, gets a key that is shown once, and is removed", func(t *testing.T) {
		owner := owner.in(t)
		res, page := owner.post(home+"/bots", url.Values{"handle": {""}, "name": {""}, "runtime": {"codex"}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, `aria-invalid="true"`, `value="codex" selected`)
		res, _ = owner.post(home+"/bots", url.Values{"name": {"Coder"}, "runtime": {"codex"}})
		want(t, res, http.StatusSeeOther, home+"/bots")
		bot := memberIDOn(t, owner, home+"/bots", "Coder")

		_, page = owner.get(home + "/keys?for=" + bot)
		contains(t, page, `value="`+bot+`" selected`)
		id := regexp.MustCompile(`name="id" value="([a-z0-9]+)"`).FindStringSubmatch(page)[1]
		form := url.Values{"id": {id}, "name": {"deploys"}, "days": {"30"}, "for": {bot}}
		for _, days := range []string{"", "soon", "0", "-1", "1.5", "36501", "99999999999999999999"} {
			form.Set("days", days)
			res, page = owner.post(home+"/keys", form)
			want(t, res, http.StatusBadRequest, "")
			if at := fieldError(page, "days"); !strings.Contains(at, "Choose how long the key works.") {
				t.Errorf("for %q days it says %q at the field", days, at)
			}
			contains(t, page, `value="deploys"`)
			lacks(t, page, "Your new key")
		}
		form.Set("days", "30")
		res, page = owner.post(home+"/keys", form)
		want(t, res, http.StatusOK, "")
		key := regexp.MustCompile(`arbe_[0-9a-f]{64}`).FindString(page)
		if key == "" || res.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("the key is %q, kept as %s", key, res.Header.Get("Cache-Control"))
		}
		res, page = owner.post(home+"/keys", form) // the form sent twice makes one key
		want(t, res, http.StatusConflict, "")
		contains(t, page, "shown once")
		_, page = owner.get(home + "/keys")
		contains(t, page, "deploys", "Coder", "never used", "until ")
		lacks(t, page, key, "does not expire")
		res, _ = owner.post(home+"/keys", url.Values{"name": {"for good"}, "days": {"never"}, "for": {bot}})
		want(t, res, http.StatusOK, "")
		_, page = owner.get(home + "/keys")
		contains(t, page, "for good", "does not expire")

		row := regexp.MustCompile(`<li id="key-([a-z0-9]+)">`).FindAllStringSubmatch(page, -1)
		for _, k := range row {
			res, _ = owner.post(home+"/keys/"+k[1]+"/revoke", nil)
			want(t, res, http.StatusSeeOther, home+"/keys")
		}
		_, page = owner.get(home + "/keys")
		contains(t, page, "No keys yet.", "Ended keys: 2", "Revoked ")

		res, _ = owner.post(home+"/members/"+bot+"/remove", url.Values{"from": {"bots"}})
		want(t, res, http.StatusSeeOther, home+"/bots")
		_, page = owner.get(home + "/bots")
		contains(t, page, "@arbe")
		lacks(t, page, "Coder")
	})
	t.Run("a bot is made, changed, written to and deleted, with errors at the fields they are about", func(t *testing.T) {
		owner := owner.in(t)
		_, page := owner.get(home + "/bots/new")
		contains(t, page, `value="run_command" checked`, `value="say" checked`, `<select id="f-model" name="model"`)
		for what, c := range map[string]struct {
			form  url.Values
			field string
			says  string
		}{
			"a handle of two words":            {url.Values{"handle": {"two words"}}, "handle", "letters a to z"},
			"a reserved handle":                {url.Values{"handle": {"everyone"}}, "handle", "reserved"},
			"a handle that looks like another": {url.Values{"handle": {"ar-be"}}, "handle", "looks like @arbe"},
			"a model without a provider":       {url.Values{"handle": {"x"}, "model": {"gpt-5"}}, "model", "which provider"},
			"an unknown effort":                {url.Values{"handle": {"x"}, "think": {"very"}}, "think", "no effort"},
			"instructions of 100 KiB":          {url.Values{"handle": {"x"}, "instructions": {strings.Repeat("x", 100<<10)}}, "instructions", "64 KiB"},
			"steps that are no number":         {url.Values{"handle": {"x"}, "turn_steps": {"many"}}, "turn_steps", "whole number"},
			"money beyond the highest":         {url.Values{"handle": {"x"}, "turn_usd": {"1001"}}, "turn_usd", "1000"},
			"an unknown tool":                  {url.Values{"handle": {"x"}, "tools": {"rm"}}, "tools", "no tool"},
		} {
			t.Run(what, func(t *testing.T) {
				res, page := owner.in(t).post(home+"/bots", c.form)
				if res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusConflict {
					t.Errorf("it answers %d", res.StatusCode)
				}
				about := regexp.MustCompile(`id="f-` + c.field + `-about"[^>]*>\s*<span class="wrong">([^<]*)`).FindStringSubmatch(page)
				if about == nil || !strings.Contains(about[1], c.says) {
					t.Errorf("at the field it says %q, want %q", about, c.says)
				}
			})
		}
		res, _ := owner.post(home+"/bots", url.Values{"handle": {"@Critic"}, "name": {"<b>Critic</b>"}, "instructions": {"Be\r\nkind."}, "model": {"other"}, "model_other": {" openai/gpt-5 "}, "think": {"high"},
			"tools": {"say", "read_thread"}, "turn_usd": {"0.5"}, "runtime": {"arbe"}})
		want(t, res, http.StatusSeeOther, home+"/bots")
		_, page = owner.get(home + "/bots")
		contains(t, page, "@critic", "&lt;b&gt;Critic&lt;/b&gt;", "answers when it is mentioned; answers direct messages")
		bot := home + "/bots/" + memberIDOn(t, owner, home+"/bots", "@critic")
		_, page = owner.get(bot)
		contains(t, page, `name="handle" value="critic"`, "Be\nkind.", `value="openai/gpt-5"`, `<option value="high" selected>`, `value="say" checked`, `value="0.5"`, "Answers direct messages", "It is not working on anything now. It no longer answers", "its direct messages can still be read")
		lacks(t, page, `value="run_command" checked`)
		res, _ = owner.post(bot, url.Values{"handle": {"critic"}, "name": {"Critic"}, "instructions": {""}, "model": {""}})
		want(t, res, http.StatusSeeOther, bot+"?saved")
		_, page = owner.get(bot + "?saved")
		contains(t, page, "Saved.", `name="name" value="Critic"`)
		lacks(t, page, `value="say" checked`, `value="high" selected`, "kind.")

		// Two people edit it in two tabs.
		version := func(page string) string {
			return regexp.MustCompile(`name="etag" value="([^"]+)"`).FindStringSubmatch(page)[1]
		}
		first := version(page)
		res, _ = owner.post(bot, url.Values{"handle": {"critic"}, "name": {"Critic"}, "instructions": {"From one tab."}, "etag": {first}})
		want(t, res, http.StatusSeeOther, bot+"?saved")
		res, page = owner.post(bot, url.Values{"handle": {"critic"}, "name": {"Critic"}, "instructions": {"From the other."}, "etag": {first}})
		want(t, res, http.StatusConflict, "")
		contains(t, page, "Someone else has changed this since you opened the page", "From the other.</textarea>")
		res, _ = owner.post(bot, url.Values{"handle": {"critic"}, "name": {"Critic"}, "instructions": {"From the other."}, "etag": {version(page)}})
		want(t, res, http.StatusSeeOther, bot+"?saved")

		res, page = owner.post(bot+"/policies", url.Values{"trigger": {"ambient"}})
		want(t, res, http.StatusBadRequest, "")
		contains(t, page, `id="f-waker-delay_ms-about"`, "It is missing")
		res, _ = owner.post(bot+"/policies", url.Values{"trigger": {"ambient"}, "delay_ms": {"30"}})
		want(t, res, http.StatusSeeOther, bot+"?saved")
		_, page = owner.get(bot)
		contains(t, page, "Listens, and answers after 30s of silence")
		policy := regexp.MustCompile(`/policies/([a-z0-9]+)"`).FindStringSubmatch(page)[1]
		res, _ = owner.post(bot+"/policies/"+policy, url.Values{"to": {"off"}})
		want(t, res, http.StatusSeeOther, bot+"?saved")
		_, page = owner.get(bot)
		contains(t, page, `<span class="tag">off</span>`)
		res, _ = owner.post(bot+"/policies/"+policy, url.Values{"to": {"deleted"}})
		want(t, res, http.StatusSeeOther, bot+"?saved")
		_, page = owner.get(bot)
		lacks(t, page, "policy-"+policy)

		res, _ = owner.post(bot+"/message", nil)
		talk := res.Header.Get("Location")
		res, _ = owner.post(bot+"/message", nil)
		want(t, res, http.StatusSeeOther, talk)
		res, _ = owner.post(bot+"/message", url.Values{"new": {"yes"}})
		if another := res.Header.Get("Location"); another == talk || !strings.HasPrefix(another, "/threads/") {
			t.Errorf("another conversation is %s, after %s", another, talk)
		}
		res, _ = owner.post(bot+"/delete", nil)
		want(t, res, http.StatusSeeOther, home+"/bots")
		res, _ = owner.get(talk)
		want(t, res, http.StatusOK, "")
		res, _ = owner.get(bot)
		want(t, res, http.StatusNotFound, "")
		res, _ = owner.get(home + "/bots/nonsense")
		want(t, res, http.StatusNotFound, "")
	})
	t.Run("what the bots may cost in a day is shown beside what they cost, and set", func(t *testing.T) {
		owner := owner.in(t)
		_, page := owner.get(home + "/bots")
		contains(t, page, "$0.00 of $50.00 today", `name="house_usd_day" value=""`)
		for _, text := range []string{"much", "-1", "0", "NaN", "100001"} {
			res, page := owner.post(home+"/limits", url.Values{"house_usd_day": {text}})
			want(t, res, http.StatusBadRequest, "")
			if fieldError(page, "house_usd_day") == "" {
				t.Errorf("with %s it says nothing at the field", text)
			}
			contains(t, page, `name="house_usd_day" value="`+text+`"`, "$0.00 of $50.00 today")
		}
		res, _ := owner.post(home+"/limits", url.Values{"house_usd_day": {" 12.5 "}})
		want(t, res, http.StatusSeeOther, home+"/bots#spending")
		_, page = owner.get(home + "/bots")
		contains(t, page, "$0.00 of $12.50 today", `name="house_usd_day" value="12.5"`)
		res, _ = owner.post(home+"/limits", url.Values{"house_usd_day": {"12.5"}, "member_usd_day": {"-1"}})
		want(t, res, http.StatusBadRequest, "")
		res, _ = owner.post(home+"/limits", url.Values{"house_usd_day": {"12.5"}, "member_usd_day": {"2"}})
		want(t, res, http.StatusSeeOther, home+"/bots#spending")
		_, page = owner.get(home + "/bots")
		contains(t, page, "What you asked has cost $0.00 of $2.00", `name="member_usd_day" value="2"`)
		res, _ = owner.post(home+"/limits", url.Values{"house_usd_day": {""}})
		want(t, res, http.StatusSeeOther, home+"/bots#spending")
	})
	t.Run("forms of the house say that someone else has changed it, and keep what was typed", func(t *testing.T) {
		owner := owner.in(t)
		forms := map[string]struct {
			on     string
			values url.Values
			kept   string
		}{
			"/limits":    {"/bots", url.Values{"house_usd_day": {"31"}}, `name="house_usd_day" value="31"`},
			"/ask":       {"/bots", url.Values{"ask": {"say"}}, `name="ask" value="say" checked`},
			"/settings":  {"/settings", url.Values{"name": {"Castle"}, "default_environment_id": {""}}, `name="name" value="Castle"`},
			"/retention": {"/retention", url.Values{"threads_days": {"3000"}}, `name="threads_days" value="3000"`},
		}
		version := func(page string) string {
			return regexp.MustCompile(`name="etag" value="([^"]+)"`).FindStringSubmatch(page)[1]
		}
		made, err := api.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: "Tent"})
		if err != nil {
			t.Fatal(err)
		}
		home := "/houses/" + made.House.Id
		for action, form := range forms {
			_, page := owner.get(home + form.on)
			res, _ := owner.post(home+"/limits", url.Values{"house_usd_day": {"30" + strconv.Itoa(len(action))}})
			want(t, res, http.StatusSeeOther, home+"/bots#spending")
			form.values.Set("etag", version(page))
			res, page = owner.post(home+action, form.values)
			want(t, res, http.StatusConflict, "")
			contains(t, page, "Someone else has changed this since you opened the page", form.kept)
			form.values.Set("etag", version(page))
			if res, page = owner.post(home+action, form.values); res.StatusCode != http.StatusSeeOther {
				t.Errorf("saving %s again is answered with %d: %s", action, res.StatusCode, page)
			}
		}
	})
	t.Run("the tools that every bot uses only with a person's approval are set, and shown to members", func(t *testing.T) {
		owner := owner.in(t)
		for _, c := range []struct{ ask, ticked []string }{{[]string{"say", "run_command"}, []string{"run_command", "say"}}, {nil, nil}} {
			res, _ := owner.post(home+"/ask", url.Values{"ask": c.ask})
			want(t, res, http.StatusSeeOther, home+"/bots#approval")
			_, page := owner.get(home + "/bots")
			var ticked []string
			for _, m := range regexp.MustCompile(`name="ask" value="(\w+)" checked`).FindAllStringSubmatch(page, -1) {
				ticked = append(ticked, m[1])
			}
			if !slices.Equal(ticked, c.ticked) {
				t.Errorf("after setting %v these are ticked: %v", c.ask, ticked)
			}
		}
		res, _ := owner.post(home+"/ask", url.Values{"ask": {"nonsense"}})
		want(t, res, http.StatusBadRequest, "")
	})
	t.Run("a member who is no owner sees bots, and changes none", func(t *testing.T) {
		grace := anyone.in(t)
		grace.session = sessionFrom(t, grace, "/join", url.Values{"token": {tokenOf(t, invite(t, "", "member"))}, "name": {"Grace"}})
		bot := home + "/bots/" + memberIDOn(t, grace, home+"/bots", "@arbe")
		_, page := grace.get(bot)
		contains(t, page, "readonly", "You are arbe")
		lacks(t, page, "Save", "Add a trigger", "Turn off", "/delete")
		_, page = grace.get(home + "/bots")
		contains(t, page, "$0.00 of $50.00 today")
		lacks(t, page, "house_usd_day", "Save the tools")
		res, page := grace.post(home+"/ask", nil)
		want(t, res, http.StatusNotFound, "")
		contains(t, page, "Only an owner of the house may do this.")
		res, _ = grace.post(home+"/limits", url.Values{"house_usd_day": {"1000"}})
		want(t, res, http.StatusForbidden, "")
		res, _ = grace.post(bot, url.Values{"handle": {"mine"}, "name": {"Mine"}})
		want(t, res, http.StatusForbidden, "")
		res, _ = grace.post(bot+"/delete", nil)
		want(t, res, http.StatusForbidden, "")
		res, _ = grace.post(bot+"/message", nil)
		if res.StatusCode != http.StatusSeeOther {
			t.Errorf("a member may not write to a bot: %d", res.StatusCode)
		}
	})
	t.Run("an environment is made, changed, made the default and deleted, with errors at the fields they are about", func(t *testing.T) {
		owner := owner.in(t)
		for what, c := range map[string]struct {
			form  url.Values
			field string
			says  string
		}{
			"a name that is too long":         {url.Values{"name": {strings.Repeat("x", 101)}}, "name", "100 characters"},
			"no name":                         {url.Values{}, "name", "at least 1"},
			"memory that is no number":        {url.Values{"name": {"x"}, "memory_mb": {"lots"}}, "memory_mb", "whole number"},
			"cores beyond the contract":       {url.Values{"name": {"x"}, "cpus": {"NaN"}}, "cpus", "a number such as"},
			"processes beyond the contract":   {url.Values{"name": {"x"}, "pids": {"1000000"}}, "pids", "100000"},
			"more than the operator allows":   {url.Values{"name": {"x"}, "memory_mb": {"1000000"}}, "memory_mb", "than the"},
			"a time nobody understands":       {url.Values{"name": {"x"}, "command_timeout": {"an hour"}}, "command_timeout", "such as 90s"},
			"a time beyond the contract":      {url.Values{"name": {"x"}, "command_timeout": {"48h"}}, "command_timeout", "than"},
			"a branch that is an option":      {url.Values{"name": {"x"}, "ref": {"--upload-pack=evil"}}, "ref", "not the name of a branch"},
			"a secret's file elsewhere":       {url.Values{"name": {"x"}, "secrets": {"KEY=../key"}}, "secrets", "cannot have this name"},
			"a repository that is no address": {url.Values{"name": {"x"}, "repo": {"ext::sh"}}, "repo", "not the address"},
		} {
			t.Run(what, func(t *testing.T) {
				res, page := owner.in(t).post(home+"/environments", c.form)
				want(t, res, http.StatusBadRequest, "")
				if about := fieldError(page, c.field); !strings.Contains(about, c.says) {
					t.Errorf("at the field it says %q, want %q: %s", about, c.says, page)
				}
				for field, values := range c.form {
					contains(t, page, `name="`+field+`" value="`+values[0]+`"`)
				}
			})
		}
		if _, page := owner.post(home+"/environments", url.Values{"name": {"x"}, "labels": {"team"}}); !strings.Contains(fieldError(page, "labels"), "such as team=web") {
			t.Errorf("a label without a value: %s", page)
		}
		form := url.Values{"name": {"web"}, "repo": {"https://example.com/web.git"}, "setup": {"make\r\nmake install"}, "memory_mb": {"512"}, "command_timeout": {"90m"}, "secrets": {"TOKEN KUBECONFIG?=kube.yaml"},
			"labels": {"team=web\r\nurl=https://example.com/?a=b"}}
		res, _ := owner.post(home+"/environments", form)
		made, saved := strings.CutSuffix(res.Header.Get("Location"), "?saved")
		if res.StatusCode != http.StatusSeeOther || !saved {
			t.Fatalf("it answers %d, %s", res.StatusCode, res.Header.Get("Location"))
		}
		_, page := owner.get(made)
		contains(t, page, `value="512"`, `value="1h30m"`, "make\nmake install", `value="TOKEN KUBECONFIG?=kube.yaml"`, ">team=web\nurl=https://example.com/?a=b</textarea>")
		form.Set("name", "site")
		form.Set("memory_mb", "")
		res, _ = owner.post(made, form)
		want(t, res, http.StatusSeeOther, made+"?saved")
		_, page = owner.get(made + "?saved")
		contains(t, page, "Saved.", `value="site"`)
		lacks(t, page, `value="512"`)
		_, page = owner.get(home + "/environments")
		contains(t, page, "site", "https://example.com/web.git")

		// A repository is enough.
		alone, _ := owner.post(home+"/environments", url.Values{"repo": {"https://example.com/team/alone.git"}})
		brief, saved := strings.CutSuffix(alone.Header.Get("Location"), "?saved")
		if alone.StatusCode != http.StatusSeeOther || !saved {
			t.Fatalf("with only a repository it answers %d, %s", alone.StatusCode, alone.Header.Get("Location"))
		}
		_, page = owner.get(brief)
		contains(t, page, `name="name" value="alone"`, `name="repo" value="https://example.com/team/alone.git"`)
		res, _ = owner.post(brief+"/delete", nil)
		want(t, res, http.StatusSeeOther, home+"/environments")

		res, _ = owner.post(made+"/default", nil)
		want(t, res, http.StatusSeeOther, made+"?saved")
		res, page = owner.post(made+"/delete", nil)
		want(t, res, http.StatusPreconditionFailed, "")
		contains(t, page, `role="alert"`, "still in use")
		_, page = owner.get(home + "/environments")
		other := regexp.MustCompile(`<li id="environment-([a-z0-9]+)">`).FindAllStringSubmatch(page, -1)
		for _, e := range other {
			if "/environments/"+e[1] != made {
				_, page = owner.post("/environments/"+e[1]+"/diagnose", nil)
				contains(t, page, "It can build a sandbox now.", ">create<", ">remove<")
				res, _ = owner.post("/environments/"+e[1]+"/default", nil)
				want(t, res, http.StatusSeeOther, "/environments/"+e[1]+"?saved")
			}
		}
		res, _ = owner.post(made+"/delete", nil)
		want(t, res, http.StatusSeeOther, home+"/environments")
		res, _ = owner.get(made)
		want(t, res, http.StatusNotFound, "")
	})
	t.Run("owners read who changed what, page by page, as text", func(t *testing.T) {
		owner := owner.in(t)
		_, page := owner.get(home + "/members")
		contains(t, page, home+"/audit")
		_, page = owner.get(home + "/audit")
		contains(t, page, "created the environment web", "Older events")
		older := regexp.MustCompile(regexp.QuoteMeta(home) + `/audit\?page=[^"]+`).FindString(page)
		_, rest := owner.get(strings.ReplaceAll(older, "&amp;", "&"))
		lacks(t, rest, "created the environment web")
		contains(t, page+rest, "changed the bot @critic", "name: &lt;b&gt;Critic&lt;/b&gt; → Critic", "deleted the bot @critic", "created the house ")
		grace := anyone.in(t)
		grace.session = sessionFrom(t, grace, "/join", url.Values{"token": {tokenOf(t, invite(t, "", "member"))}, "name": {"Hedy"}})
		res, page := grace.get(home + "/audit")
		want(t, res, http.StatusNotFound, "")
		contains(t, page, "Only an owner of the house may do this.")
		_, page = grace.get(home + "/members")
		lacks(t, page, home+"/audit")
	})
	t.Run("in a browser, the link is copied and a second person sees the house live", func(t *testing.T) {
		b := newTab(t, owner.base)
		b.logOut()
		b.open(invite(t, "", "member"))
		b.do(keysInto("#f-name", "Barbara"))
		b.enter()
		b.until("the house", "document.title.startsWith('Home') && !!document.querySelector('.starter')")
		b.untilLive()
		b.do(chromedp.Click(chromedp.CSS("#place-settings")))
		b.until("the members", "document.querySelector('.rows').innerText.includes('Barbara')")
		b.untilLive()
		b.until("the mark at the settings", "document.querySelector('[aria-current].place')?.id === 'place-settings'")

		b.open(home + "/bots")
		b.untilLive()
		made, err := api.Bots.CreateBot(t.Context(), &arbev1.CreateBotRequest{HouseId: houses.Houses[0].Id, Handle: "lively"})
		if err != nil {
			t.Fatal(err)
		}
		b.until("the new bot", "document.querySelector('#bot-list').innerText.includes('@lively')")
		if _, err := api.Bots.DeletePolicy(t.Context(), &arbev1.DeletePolicyRequest{HouseId: made.Bot.HouseId, Id: made.Bot.Policies[0].Id}); err != nil {
			t.Fatal(err)
		}
		b.until("what wakes it", "!document.querySelector('#member-"+made.Bot.Id+"').innerText.includes('mentioned')")
		if _, err := api.Bots.DeleteBot(t.Context(), &arbev1.DeleteBotRequest{HouseId: made.Bot.HouseId, Id: made.Bot.Id}); err != nil {
			t.Fatal(err)
		}
		b.until("that it is gone", "!document.querySelector('#bot-list').innerText.includes('@lively')")
	})
}

// fieldError returns the error that a page shows at a field of its form.
func fieldError(page, field string) string {
	about := regexp.MustCompile(`id="f-` + field + `-about"[^>]*>\s*<span class="wrong">([^<]*)`).FindStringSubmatch(page)
	if about == nil {
		return ""
	}
	return about[1]
}

// in returns the client for a part of its test.
func (c client) in(t *testing.T) client {
	c.t = t
	return c
}

// tokenOf returns the token in the address of a link.
func tokenOf(t *testing.T, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || u.Query().Get("token") == "" {
		t.Fatalf("%q is no link", link)
	}
	return u.Query().Get("token")
}

// sessionFrom sends a form that logs in, and returns the session.
func sessionFrom(t *testing.T, c client, path string, form url.Values) string {
	t.Helper()
	res, page := c.in(t).post(path, form)
	if res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s answers %d: %s", path, res.StatusCode, page)
	}
	for _, cookie := range res.Cookies() {
		if cookie.Name == "arbe_session" {
			return cookie.Value
		}
	}
	t.Fatalf("%s sets no session", path)
	return ""
}

// memberID returns the id of the member whose row contains a text.
func memberID(t *testing.T, c client, home, text string) string {
	t.Helper()
	return memberIDOn(t, c, home+"/members", text)
}

func memberIDOn(t *testing.T, c client, path, text string) string {
	t.Helper()
	_, page := c.get(path)
	for row := range strings.SplitSeq(page, `<li id="member-`) {
		if id, rest, _ := strings.Cut(row, `"`); strings.Contains(rest, text) && len(id) == 36 {
			return id
		}
	}
	t.Fatalf("%s has no row with %q", path, text)
	return ""
}

// The settings are a list with groups. On a phone, a button opens it, and nothing scrolls sideways.
func TestTheSettingsAreAListWithGroups(t *testing.T) {
	t.Parallel()
	f := newFake()
	b := newTab(t, f.start(t))
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1})
	b.open("/houses/home/members")
	b.untilLive()
	if wide := eval[bool](b, "document.querySelector('#settings-list').checkVisibility() || [...document.querySelectorAll('.page, .page *')].some(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto')"); wide {
		t.Error("on a phone, the list is open at once, or the page scrolls sideways")
	}
	b.do(chromedp.Click(chromedp.CSS(".settings-button")))
	b.until("the list", "document.querySelector('#settings-list a[aria-current]').innerText === 'Members' && document.querySelector('#settings-list').checkVisibility()")
	b.loadAxe()
	b.accessible("the list of settings on a phone")
	b.pictures("settings-list")
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1})
	b.do(chromedp.Click(chromedp.CSS("#settings-list a[href$='/retention']")))
	b.until("the other page, with the list closed", "location.pathname.endsWith('/retention') && !document.querySelector('#settings-list')?.checkVisibility()")
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1})
	b.until("the list beside the page", "document.querySelector('#settings-list')?.checkVisibility() && !document.querySelector('.settings-button').checkVisibility()")

	f.mu.Lock()
	f.house = copied(f.house)
	f.house.Role = "member"
	f.mu.Unlock()
	_, page := ada(t, f).get("/houses/home/members")
	contains(t, page, `<h2>Access</h2>`, ">Secrets</a>")
	lacks(t, page, ">Audit log</a>", ">Retention</a>")
}
