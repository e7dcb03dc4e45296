//go:build linux

package web_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
	"github.com/arbe-dev/arbe/internal/harness/pi"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// repository is the setup of an environment: a repository with a failing test. Pi is there already, from this machine.
func repository(program string) string {
	return `set -e
dir=$HOME/.arbe/agents/pi-` + pi.Version + `
mkdir -p $dir
ln -s ` + program + `/node_modules $dir/node_modules
echo ` + pi.Version + ` > $dir/.installed
cd /workspace
git init -q -b main
printf '#!/bin/sh\necho $(($1 - $2))\n' > add.sh
printf '#!/bin/sh\nsum=$(sh add.sh 2 3)\nif [ $sum = 5 ]; then echo PASS; else echo "FAIL: 2 + 3 is $sum"; exit 1; fi\n' > test.sh
git add -A
git -c user.name=Ada -c user.email=ada@example.com commit -qm first
`
}

// TestAFailingTestIsFixed: a person asks arbe to fix a failing test. Arbe delegates the task to pi, which runs the test, edits
// the code and runs the test again. The server is killed in the middle. The page has the diff, and the thread the result.
func TestAFailingTestIsFixed(t *testing.T) {
	t.Parallel()
	program := harnesstest.Program(t, pi.Harness{})
	bash := func(command string) modeltest.Call {
		arguments, _ := json.Marshal(map[string]string{"command": command})
		return modeltest.Call{Name: "bash", Arguments: string(arguments)}
	}
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		done := 0 // tool calls so far
		for _, m := range r.Messages {
			if m.Role == "tool" {
				done++
			}
		}
		switch {
		case slices.Contains(r.Tools, entry.DelegateTaskTool):
			switch {
			case strings.Contains(string(r.Body), "2 + 3 is 5 now."):
				return modeltest.Reply{Text: "The test passes."}
			case r.Last().Role == "tool":
				return modeltest.Reply{Text: "Pi works on it."}
			}
			return modeltest.Reply{Text: "I give it to pi.", Calls: []modeltest.Call{{Name: entry.DelegateTaskTool, Arguments: `{"task":"Make test.sh pass.","agent":"@pi"}`}}}
		case !slices.Contains(r.Tools, "bash"):
			return modeltest.Reply{Text: "Fix the test"} // a title
		}
		switch done {
		case 0:
			return modeltest.Reply{Text: "I run the test.", Calls: []modeltest.Call{bash("until test -e .git/go; do sleep 0.1; done; sh test.sh")}}
		case 1:
			return modeltest.Reply{Text: "It subtracts.", Calls: []modeltest.Call{bash("sed -i 's/ - / + /' add.sh")}}
		case 2:
			return modeltest.Reply{Text: "And again.", Calls: []modeltest.Call{bash("sh test.sh")}}
		}
		return modeltest.Reply{Text: "2 + 3 is 5 now. It says: " + r.Last().Text}
	})
	a := installation(t)
	a.env = append(a.env, "ANTHROPIC_API_KEY=sk-test", "ANTHROPIC_BASE_URL="+models.URL, "ARBE_MODEL=anthropic/plain", "ARBE_SANDBOX_HOST_DIRS="+program,
		"ARBE_SANDBOX_GRACE=2m", "ARBE_SANDBOX_MAX_MEMORY_MB=2048")
	a.start()
	c := a.client()
	homes, err := c.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	house := homes.Houses[0].Id
	env, err := c.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: "project", Config: &arbev1.EnvironmentConfig{Setup: repository(program)}})
	if err == nil {
		_, err = c.Houses.UpdateHouse(t.Context(), &arbev1.UpdateHouseRequest{Id: house, DefaultEnvironmentId: &env.Environment.Id})
	}
	if err != nil {
		t.Fatal(err)
	}
	link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, "http://"+a.addr)
	b.logOut()
	b.open(link.Path)
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")
	b.untilLive()
	b.do(keysInto("#starter-text", "@arbe fix the failing test"))
	b.enter()
	b.until("the thread", "location.pathname.startsWith('/threads/')")
	b.until("that arbe has delegated", "document.querySelector('.child-card')?.innerText.includes('Make test.sh pass.') && document.querySelector('#log').innerText.includes('Pi works on it.')")
	parent := eval[string](b, "location.pathname")
	child := eval[string](b, "document.querySelector('.child-open').getAttribute('href')")

	b.open(child)
	b.untilLive()
	// Not when pi is still writing that it does, because it would write that again.
	b.until("that pi runs the test", "[...document.querySelectorAll('[data-entry]:has(.call .status.running)')].some(e => e.textContent.includes('I run the test.')) && document.title.includes('running')")
	a.kill()
	b.until("that the server is gone", "document.documentElement.dataset.connection === 'lost'")
	a.start()
	b.until("that it is back", "!document.documentElement.dataset.connection")
	c = a.client()
	if _, err := c.Threads.RunCommand(t.Context(), &arbev1.RunCommandRequest{ThreadId: strings.TrimPrefix(child, "/threads/"), What: &arbev1.RunCommandRequest_Command{Command: "touch .git/go"}}); err != nil {
		t.Fatal(err)
	}
	b.until("the result", "document.querySelector('#log').innerText.includes('2 + 3 is 5 now. It says: PASS')")
	b.until("how the run ended", "document.querySelector('#log .changes a')?.innerText === '1 file changed'")
	b.do(chromedp.Click(chromedp.CSS("#log .changes a")))
	b.until("the diff", "(d => d?.includes('add.sh') && d.includes('echo $(($1 + $2))') && !d.includes('test.sh'))(document.querySelector('#log .changes')?.innerText)")
	b.until("that nothing runs", "!document.title.includes('running')")
	said := "document.querySelector('#log').innerText"
	for _, words := range []string{"I run the test.", "It subtracts.", "And again."} {
		if n := eval[int](b, said+".split("+quoted(words)+").length - 1"); n != 1 {
			t.Errorf("the page says %q %d times", words, n)
		}
	}

	b.open(parent)
	b.untilLive()
	b.until("the result in the thread, and the answer to the person", "document.querySelector('.child-card').innerText.includes('2 + 3 is 5 now.') && "+said+".includes('The test passes.')")
}
