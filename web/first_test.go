package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAnEmptyHouseOffersExamples(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.models = &arbev1.ListModelsResponse{Problem: "this house has no model"}
	f.thread("housethr", "Home") // each house begins with a thread
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.until("three examples and a checklist", "document.querySelectorAll('.example').length === 3 && document.querySelectorAll('.checklist li').length === 4")
	b.accessibleEverywhere("an empty house")
	b.pictures("first-empty")
	b.do(chromedp.Click(chromedp.CSS(".example[href*='example=command']")))
	b.until("the command in the composer, with the focus", "document.activeElement.id === 'starter-text' && document.activeElement.value.startsWith('!uname')")
	b.untilLive() // before that, Enter breaks the line
	b.enter()
	b.until("the thread that it starts", "location.pathname.startsWith('/threads/') && !!document.querySelector('.command')")
	f.update("housethr", func(th *arbev1.Thread) { th.LastSaid = &arbev1.LastSaid{AuthorName: "Ada", Text: "Hello."} })
	b.open("/houses/home")
	b.until("no examples in a house in which something was said", "!!document.querySelector('.thread-item') && !document.querySelector('.example')")
}

func TestAnExampleNamesABotThatIsThere(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := ada(t, f)
	_, page := c.get("/houses/home")
	if n := strings.Count(page, `class="example"`); n != 1 {
		t.Errorf("a house without bots offers %d examples, want the command only", n)
	}
	f.agents = append(f.agents, &arbev1.Agent{Id: "7f6f0a52-0000-4000-8000-00000000000b", Kind: "bot", Name: "Helper", Handle: "helper", Runtime: "arbe"})
	_, page = c.get("/houses/home?example=ask")
	contains(t, page, "@helper What can you do in this house, and which tools do you have?</textarea>")
	_, page = c.get("/houses/home?example=%3Cscript%3E")
	contains(t, page, `autofocus></textarea>`)
}

func TestTheChecklistOfANewHouse(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.models = &arbev1.ListModelsResponse{Problem: "this house has no model"}
	c := ada(t, f)
	_, page := c.get("/houses/home")
	contains(t, page, "Set up this house", "0 of 4 done", `href="/environments/env1#diagnosis"`, `href="/houses/home/models#paste-key"`, `href="/environments/env1"`, `href="/houses/home/members#invite"`)

	f.models = &arbev1.ListModelsResponse{Endpoints: []*arbev1.ModelEndpoint{{Name: "anthropic", Models: []string{"opus"}}}, Problem: "this house has not chosen its default model"}
	_, page = c.get("/houses/home")
	contains(t, page, "0 of 4 done", `href="/houses/home/models#default-model"`)

	f.models = &arbev1.ListModelsResponse{DefaultModel: "anthropic/opus"}
	f.recipes[0].Config = &arbev1.EnvironmentConfig{Repo: "https://ada:hunter2@git.example.com/a.git"}
	_, page = c.get("/houses/home")
	contains(t, page, "2 of 4 done", "Bots answer with anthropic/opus.", "start with https://git.example.com/a.git.")
	lacks(t, page, "hunter2")

	f.boxes["box1"] = &arbev1.Sandbox{Id: "box1", Use: &arbev1.SandboxUse{UsedAt: timestamppb.Now()}}
	f.recipes[0].Config.Secrets = []*arbev1.SecretBinding{{Name: "MAYBE", Optional: true}, {Name: "NPM_TOKEN"}}
	_, page = c.get("/houses/home")
	contains(t, page, "3 of 5 done", "Commands have run in one.", "The secret NPM_TOKEN", `href="/houses/home/secrets"`)
	lacks(t, page, "The secret MAYBE")
	f.secrets["NPM_TOKEN"] = "s3cret"

	f.house.Role = "member"
	_, page = c.get("/houses/home")
	lacks(t, page, "Set up this house")
	f.house.Role = "owner"

	f.invites = []*arbev1.Invite{{Id: "i1"}}
	res, page := c.get("/houses/home")
	lacks(t, page, "Set up this house")
	cookie := res.Header.Get("Set-Cookie")
	if !strings.HasPrefix(cookie, "arbe_started=home;") {
		t.Errorf("the browser does not remember that all is done: %q", cookie)
	}
}

// What runs says in the list what it does, what it has cost, and where it runs.
func TestTheListSaysWhatARunDoes(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.thread("runsruns", "Runs")
	f.update("runsruns", func(th *arbev1.Thread) {
		th.AgentId, th.Status, th.SandboxId = bee, arbev1.ThreadStatus_THREAD_STATUS_RUNNING, "box1"
		th.Running = &arbev1.Running{RunEpoch: 1, Since: timestamppb.Now()}
		th.LastRun = &arbev1.LastRun{Epoch: 1, Doing: "running bash <b>", CostMicros: 420_000}
	})
	_, page := ada(t, f).get("/houses/home")
	contains(t, page, "running bash &lt;b&gt; · $0.42", `href="/sandboxes/box1"`, `action="/threads/runsruns/stop"`)
	f.update("runsruns", func(th *arbev1.Thread) {
		th.Running, th.LastRun.FinishedAt, th.Status = nil, timestamppb.Now(), arbev1.ThreadStatus_THREAD_STATUS_COMPLETED
	})
	_, page = ada(t, f).get("/houses/home")
	lacks(t, page, "$0.42", `href="/sandboxes/box1"`, `action="/threads/runsruns/stop"`)
}

func TestTheChecklistCanBeDismissed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.models = &arbev1.ListModelsResponse{Problem: "this house has no model"}
	b := newTab(t, f.start(t))
	b.open("/houses/home")
	b.do(chromedp.Click(chromedp.CSS(".checklist-head button")))
	b.until("the page without the list", "!!document.querySelector('.example') && !document.querySelector('.checklist')")
	b.open("/houses/home")
	b.until("that it stays away", "!!document.querySelector('.example') && !document.querySelector('.checklist')")
}

func TestAPageWorksWithoutItsChecklist(t *testing.T) {
	t.Parallel()
	res, page := ada(t, newFake()).get("/houses/home") // its models cannot be listed
	want(t, res, http.StatusOK, "")
	contains(t, page, "starter-text")
	lacks(t, page, "Set up this house")
}

// Pages know no driver by name.
func TestThePagesOfEnvironmentsNameTheServersDefaultDriver(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.recipes[0].Config = &arbev1.EnvironmentConfig{}
	c := ada(t, f)
	_, page := c.get("/houses/home/environments")
	contains(t, page, "the standard driver&#39;s base image")
	_, page = c.get("/houses/home/environments/new")
	contains(t, page, "Leave empty for standard.", `<details class="limits"><summary>Limits and driver`)
	_, page = c.get("/environments/env1") // of the driver local, which is not the default here
	contains(t, page, `<details class="limits" open><summary>Limits and driver`)
}
