package web_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// violation is a rule of axe that a page violates, with the elements that violate it.
type violation struct {
	ID, Help string
	Nodes    []struct{ Target, Summary string }
}

// colourRules are the rules of axe that depend on colours. Only colours differ between the colour schemes: the style sheet
// chooses them with light-dark(), and nothing else.
var colourRules = []string{"color-contrast", "link-in-text-block"}

// accessible runs rules of axe on the tab's page; without any, all.
func (b *tab) accessible(what string, rules ...string) {
	b.t.Helper()
	only := "undefined"
	if len(rules) > 0 {
		text, err := json.Marshal(rules)
		if err != nil {
			b.t.Fatal(err)
		}
		only = string(text)
	}
	// The page adapts to a new width a moment later.
	b.until("the regions that scroll", "[...document.querySelectorAll('#log .chat pre, #log .chat .table, #log .screen')]"+
		".every(e => (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight) === e.hasAttribute('aria-label'))")
	// No rule that runs reads the style sheets, so axe need not load them.
	run := `axe.run(document, {runOnly: ` + only + `, resultTypes: ['violations'], preload: {assets: ['media']}}).then(r => JSON.stringify(r.violations.map(v => ({
		ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 5).map(n => ({Target: n.target.join(' '), Summary: n.failureSummary + ' ' + n.html.slice(0, 200)}))}))))
		.then(text => { window.axeSays = text }, error => { window.axeSays = 'failed: ' + error })`
	eval[int](b, "(window.axeSays = '', "+run+", 1)")
	b.until("axe's answer", "window.axeSays !== ''")
	var found []violation
	if said := eval[string](b, "window.axeSays"); json.Unmarshal([]byte(said), &found) != nil {
		b.t.Fatalf("axe says: %s", said)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s)\n%s\n%s", what, v.Help, v.ID, n.Target, n.Summary)
		}
	}
}

// loadAxe loads axe into the page that the tab shows.
func (b *tab) loadAxe() {
	b.t.Helper()
	rules, err := os.ReadFile("axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatalf("install axe with: make web/axe/node_modules: %v", err)
	}
	eval[int](b, string(rules)+"\n;1")
}

// accessibleEverywhere runs axe wide and on a phone, in both colour schemes.
func (b *tab) accessibleEverywhere(what string) {
	b.t.Helper()
	b.loadAxe()
	for scheme, rules := range map[string][]string{"light": nil, "dark": colourRules} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		for _, width := range []int64{1440, 390} {
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
			b.until("the width", fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", width, scheme))
			b.accessible(fmt.Sprintf("%s, %s, %d px", what, scheme, width), rules...)
		}
	}
}

// TestEveryPageIsAccessible checks the pages of a whole server against axe's rules: in both colour schemes, wide and on a
// phone.
func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	api := a.client()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	link, err := api.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	must(err)
	houses, err := api.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	must(err)
	house := houses.Houses[0]
	home := "/houses/" + house.Id
	bot, err := api.Agents.CreateAgent(t.Context(), &arbev1.CreateAgentRequest{HouseId: house.Id, Name: "Coder", Runtime: "pi"})
	must(err)
	for _, holder := range []string{"", bot.Agent.Id} {
		_, err = api.Credentials.CreateAPIKey(t.Context(), &arbev1.CreateAPIKeyRequest{HouseId: house.Id, Name: "CI", AgentId: holder})
		must(err)
	}
	for _, name := range []string{"ANTHROPIC_API_KEY", "SHORT"} {
		_, err = api.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: house.Id, Name: name, Value: []byte(name[:5]), SkipCheck: true})
		must(err)
	}
	_, err = api.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house.Id, Name: "lab", BaseUrl: "https://models.example.com/v1", SecretName: "LAB_KEY", SkipCheck: true})
	must(err)
	invite, err := api.Houses.CreateInvite(t.Context(), &arbev1.CreateInviteRequest{HouseId: house.Id, Note: "Grace"})
	must(err)
	// Small, because other tests use sandboxes on the same machine.
	_, err = api.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{
		Id: house.DefaultEnvironmentId, Config: &arbev1.EnvironmentConfig{Limits: &arbev1.Limits{MemoryMb: 256, DiskMb: 256}},
	})
	must(err)
	made, err := api.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: house.Id, Name: "Everything", Tags: []string{"deploy"}})
	must(err)
	thread := made.Thread.Id
	const wide = "a line that is so long that it does not fit on a phone, nor on most screens, and so must be scrolled to be read by anybody whoever"
	for _, text := range []string{
		"# A heading\n\n- [x] a task that is done\n- [ ] a task that is not\n\n> a quote\n\n| a | b |\n|---|--:|\n| " + wide + " | 2 |",
		"```go\nfunc main() { println(\"" + wide + "\") } // and a comment\n```\n\n```diff\n- old\n+ new\n```\n\n`code`, a [link](https://example.com) and ~~nothing~~",
		"!seq 1 100; printf '\\033[31mred\\033[0m \\033[32mgreen\\033[0m \\033[1;34mblue\\033[0m \\033[90mgrey\\033[0m\\n'; echo " + strings.Repeat("x", 300),
		"!git init --quiet && git -c user.name=Ada -c user.email=a@b commit --quiet --allow-empty -m first; mkdir src; printf 'package main // " + wide + "\\n' > main.go; exit 3",
		"!echo running; sleep 1000",
	} {
		_, err = api.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: thread, Text: text})
		must(err)
	}

	device, err := api.Agents.BeginDeviceLogin(t.Context(), &arbev1.BeginDeviceLoginRequest{Client: "arbe on build-7"})
	must(err)

	b := newTab(t, "http://"+a.addr)
	b.logOut()
	check := func(t *testing.T, name, path, ready string) {
		b := b.in(t)
		b.open(path)
		b.until("the page "+name, ready)
		b.accessibleEverywhere(name)
	}
	for name, path := range map[string]string{"login": "/login", "the question of a login link": link.Path, "the question of an invite": invite.Path} {
		t.Run(name, func(t *testing.T) { check(t, name, path, "!!document.querySelector('.alone')") })
	}
	b.open(link.Path)
	b.until("the question whether to log in", "!!document.querySelector('form[action=\"/login\"] button')")
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")
	// The page must not change during the check, so wait until the running command has begun and all others have ended.
	begun := "!!document.querySelector('.foot.running') && [...document.querySelectorAll('.foot')].filter(f => /exit [03]/.test(f.innerText)).length === 2 && " +
		"[...document.querySelectorAll('.screen')].some(s => s.innerText.trim() === 'running')"
	b.open("/threads/" + thread)
	b.until("the commands", begun)
	driven, err := api.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread})
	must(err)
	box := driven.Thread.SandboxId
	for name, page := range map[string]struct{ path, ready string }{
		"house":           {home, "document.documentElement.dataset.live === ''"},
		"thread":          {"/threads/" + thread, begun},
		"files":           {"/threads/" + thread + "/files", "!!document.querySelector('.rows .file-name')"},
		"a file":          {"/threads/" + thread + "/files?path=main.go", "!!document.querySelector('.file-text')"},
		"changes":         {"/threads/" + thread + "/diff", "!!document.querySelector('.diff-file')"},
		"primary thread":  {"/threads/" + house.PrimaryThreadId, "!!document.querySelector('.note')"},
		"members":         {home + "/members", "!!document.querySelector('.rows')"},
		"bots":            {home + "/bots", "!!document.querySelector('.rows')"},
		"a bot":           {home + "/bots/" + bot.Agent.Id, "!!document.querySelector('.fields')"},
		"new bot":         {home + "/bots/new", "!!document.querySelector('.fields')"},
		"environments":    {home + "/environments", "!!document.querySelector('.rows')"},
		"an environment":  {"/environments/" + house.DefaultEnvironmentId, "!!document.querySelector('.fields')"},
		"new environment": {home + "/environments/new", "!!document.querySelector('.fields')"},
		"sandboxes":       {home + "/sandboxes", "!!document.querySelector('.rows')"},
		"a sandbox":       {"/sandboxes/" + box, "!!document.querySelector('.rows')"},
		"keys":            {home + "/keys", "!!document.querySelector('.rows')"},
		"models":          {home + "/models", "!!document.querySelector('.rows')"},
		"audit log":       {home + "/audit", "!!document.querySelector('.rows')"},
		"notifications":   {"/notifications", "!!document.querySelector('#push button')"},
		"secrets":         {home + "/secrets", "!!document.querySelector('.rows')"},
		"a code":          {device.Path, "!!document.querySelector('.device-answer')"},
		"no code":         {"/login/device", "!!document.querySelector('.fields')"},
	} {
		t.Run(name, func(t *testing.T) { check(t, name, page.path, page.ready) })
	}
	t.Run("the menu of the composer", func(t *testing.T) {
		b := b.in(t)
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1})
		b.open("/threads/" + thread)
		b.until("the page", begun)
		b.do(keysInto("#composer-text", "@co"))
		b.until("the menu", "!!document.querySelector('.completions [role=option]')")
		b.loadAxe()
		b.accessible("the open menu")
	})
}
