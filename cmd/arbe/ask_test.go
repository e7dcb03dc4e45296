package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// models answers for the models of the scripts with bots. Any other model answers as in [modeltest.ByName].
func models(r *modeltest.Request) modeltest.Reply {
	done := r.Last().Role == "tool"
	switch r.Model {
	case "plain":
		return modeltest.Reply{Text: "The build is **red**.\n\nA \x1b[31mtest\x1b[0m fails.\a\n"}
	case "slow":
		return modeltest.Reply{Text: "first second third", Hold: true}
	case "looking":
		if !done {
			return modeltest.Reply{Text: "Let me look.", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}}
		}
		return modeltest.Reply{Text: "There are some."}
	case "planning":
		if !done {
			return modeltest.Reply{Calls: []modeltest.Call{{Name: "create_thread", Arguments: `{"name":"Plan","text":"first\nsecond: \u202egpj"}`}}}
		}
		return modeltest.Reply{Text: "So be it."}
	case "running":
		if !done {
			return modeltest.Reply{Calls: []modeltest.Call{{Name: "run_command", Arguments: `{"command":"echo from the sandbox"}`}}}
		}
		return modeltest.Reply{Text: "It printed a line."}
	case "claude-sonnet-4-5", "claude-haiku-4-5": // models with a known price; a call of the first costs about $0.30
		usage := &modeltest.Usage{Output: 20_000}
		if done {
			return modeltest.Reply{Text: "There are some.", Usage: usage}
		}
		return modeltest.Reply{Text: "Wait", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}, Hold: r.Model == "claude-haiku-4-5", Usage: usage}
	case "thinking":
		said := "a usual while"
		if budget := regexp.MustCompile(`"budget_tokens":(\d+)`).FindSubmatch(r.Body); budget != nil {
			said = string(budget[1]) + " tokens"
		}
		if !done {
			return modeltest.Reply{Thinking: "Which threads\nare there? \x1b[31m\u202e", Calls: []modeltest.Call{{Name: "list_threads", Arguments: "{}"}}}
		}
		return modeltest.Reply{Thinking: "Some.", Text: "I think for " + said + fmt.Sprintf(", told so: %t.", strings.Contains(r.Asked(), "/think"))}
	case "mute":
		return modeltest.Reply{}
	case "cut-once":
		if r.Seen == 0 {
			return modeltest.Reply{Text: "wrong words here", Cut: 3, Hold: true}
		}
		return modeltest.Reply{Text: "right words"}
	}
	return modeltest.ByName(r)
}

// modelServer starts a model server, and returns the settings with which a server uses it.
func modelServer(t *testing.T) (server *modeltest.Server, settings []string) {
	t.Helper()
	server = modeltest.New(t, models)
	return server, []string{"ANTHROPIC_API_KEY=sk-test", "ANTHROPIC_BASE_URL=" + server.URL, "ARBE_MODEL=anthropic/plain", "OPENAI_API_KEY=", "OPENAI_BASE_URL="}
}

// TestScriptsWithBots plays scripts against servers whose models are scripted. Each script has its own server, because any
// held answer may take a step. In addition to the commands of [TestScripts], scripts have:
//
//	step [N]               lets a held answer of a model write its next part, N times
//	needs N [REASON...]    waits until N threads need the person of the current profile, for these reasons, wherever it is shown
func TestScriptsWithBots(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"testdata/ask", "testdata/approve", "testdata/read", "testdata/limits", "testdata/run", "testdata/think"} {
		server, settings := modelServer(t)
		if dir == "testdata/think" { // these scripts have models that cannot think
			settings = append(settings, "OPENAI_API_KEY=sk-test", "OPENAI_BASE_URL="+server.URL+"/v1")
		}
		step := func(ts *testscript.TestScript, _ bool, args []string) {
			times := 1
			if len(args) > 0 {
				var err error
				times, err = strconv.Atoi(args[0])
				ts.Check(err)
			}
			for range times {
				ts.Check(server.Step(t.Context()))
			}
		}
		up := startUp(t, settings...)
		playWith(t, dir, up, "", map[string]func(*testscript.TestScript, bool, []string){"step": step, "needs": needsAt(up.host)})
	}
}

// A server that is away for longer than the person's patience has its own exit code, because the bot may still answer.
func TestAskEndsWhenItsServerIsGone(t *testing.T) {
	t.Parallel()
	_, settings := modelServer(t)
	server := startUp(t, append(settings, "ARBE_MODEL=anthropic/slow")...)
	address, err := url.Parse(server.host)
	if err != nil {
		t.Fatal(err)
	}
	line := httputil.NewSingleHostReverseProxy(address)
	line.FlushInterval = -1 // at once
	between := httptest.NewServer(line)
	defer between.Close()
	cmd := exec.Command("arbe", "ask", "what now?", "--patience", "20s", "--host", between.URL)
	cmd.Env = append(os.Environ(), "ARBE_TOKEN="+server.token, "HOME="+t.TempDir())
	said := &lines{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("first"))
	if _, err := out.Read(first); err != nil {
		t.Fatalf("it printed nothing: %v: %s", err, said.String())
	}
	between.Listener.Close() // first, because arbe connects again at once
	between.CloseClientConnections()
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(out); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitAnswerLater {
		t.Errorf("it ended with %v, want exit code %d", err, exitAnswerLater)
	}
	if !strings.Contains(said.String(), "arbe thread entries read ") {
		t.Errorf("it does not say where the answer will be: %s", said.String())
	}
}
