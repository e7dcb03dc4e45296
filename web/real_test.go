package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd/httpdtest"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// asServer is the environment variable that makes this test program run as a server, so that a test can kill a real process.
const asServer = "ARBE_TEST_AS_SERVER"

// beServer runs a server until it is interrupted.
func beServer() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, _, err := server.Load(nil, os.Getenv)
	if err != nil {
		panic(err)
	}
	s, err := server.Start(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, fault.From(err).Detail())
		return 1
	}
	if err := s.Wait(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := s.Stop(); err != nil {
		return 1
	}
	return 0
}

// TestTheRealThing uses all of arbe as a person does: with a server process, its own Postgres and sandboxes, and a browser.
func TestTheRealThing(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	c := a.client()
	link, err := c.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, "http://"+a.addr)
	b.logOut()
	b.open(link.Path)
	b.until("the question whether to log in", "document.querySelector('form[action=\"/login\"] button')?.innerText.startsWith('Log in as ')")
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house, behind the login link", "location.pathname.startsWith('/houses/') && document.title.startsWith('Home')")

	t.Run("a thread starts with a command, whose output comes back", func(t *testing.T) {
		b := b.in(t)
		b.do(keysInto("#starter-text", "!echo made on $(uname -s) > note; cat note"))
		b.enter()
		b.until("the thread", "location.pathname.startsWith('/threads/')")
		b.until("the output", "document.querySelector('.screen')?.innerText.includes('made on Linux')")
		b.until("the outcome", "document.querySelector('.foot').innerText.includes('exit 0')")
	})
	t.Run("the next command sees its files, and streams while it runs, in every tab", func(t *testing.T) {
		other := b.another()
		other.open(eval[string](b, "location.pathname"))
		other.untilLive()
		b.untilLive() // before that, Enter breaks the line
		b.write("!cat note; echo still running; sleep 1000")
		for _, tab := range []*tab{b, other} {
			tab.until("output of the running command", "[...document.querySelectorAll('.command:has(> .foot.running) .screen')].some(s => s.innerText.includes('still running') && s.innerText.includes('made on Linux'))")
		}
		// This is the Stop in the head. The Stop of a command moves down with the first lines of its output.
		b.until("Stop in the head", "!!document.querySelector('#thread-head .stop button')")
		b.do(chromedp.Click(chromedp.CSS("#thread-head .stop button")))
		other.until("the end of it", "!document.querySelector('.stop') && /stopped by .+ · /.test(document.querySelector('#log').innerText)")
		other.until("the sandbox beside it", "document.querySelector('#details .sandbox-state').innerText.includes('Live') && !!document.querySelector('#details .sandbox-state a[href^=\"/sandboxes/\"]')")
	})
	t.Run("output that the log does not hold is downloaded whole, and never shown", func(t *testing.T) {
		b := b.in(t)
		b.write("!echo '<script>document.title = 1</script>'; seq 1 100000")
		b.until("the download", "!!document.querySelector('a[download][href^=\"/api/artifact/\"]')")
		eval[int](b, `(fetch(document.querySelector('a[download][href^="/api/artifact/"]').href).then(async r => window.got = [r.status, r.headers.get('content-disposition'),
			r.headers.get('content-security-policy'), (await r.text()).length].join(' ')), 1)`)
		b.until("all of it", "window.got === '200 attachment; filename=\"output of echo __script_document.title _ 1__script___ seq 1 100000.txt\" sandbox; default-src \\'none\\'; frame-ancestors \\'none\\' 588931'")
	})
	t.Run("the page goes on after the server was killed, with nothing missing or doubled", func(t *testing.T) {
		b := b.in(t)
		b.untilLive()
		eval[int](b, "window.sameDocument = 1")
		a.kill()
		b.until("that it is lost", "document.documentElement.dataset.connection === 'lost'")
		b.write("written while it was away.")
		a.start()
		b.until("what was written", says("written while it was away.", 1))
		b.until("an empty outbox and silence", "!document.querySelector('#outbox form') && !document.documentElement.dataset.connection")
		if eval[int](b, "window.sameDocument || 0") != 1 {
			t.Error("the page was reloaded")
		}
		doubled := eval[int](b, "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('#log [id^=e]')].map(e => e.id))")
		next := eval[int](b, "Number(document.querySelector('.next').id.slice(5))")
		here := eval[int](b, "document.querySelectorAll('#log [id^=e]:not(#empty-thread)').length")
		if doubled != 0 || here != next-1 {
			t.Errorf("the page has %d entries of %d, %d of them doubled", here, next-1, doubled)
		}
	})
	t.Run("a thread of 10,000 entries opens at its end, and at an entry far up", func(t *testing.T) {
		b := b.in(t)
		long := a.thread(a.client(), 10_000)
		b.open("/threads/" + long)
		b.untilLive()
		b.until("the end", "!!document.querySelector('#e10000')")
		b.open("/threads/" + long + "#e17")
		b.until("an entry far up, by its link", "document.querySelector(':target')?.id === 'e17'")
	})
}

// arbeInstallation is a data directory and the server that uses it.
type arbeInstallation struct {
	t      testing.TB
	dir    string
	addr   string
	server *exec.Cmd
	// env holds more environment variables. said holds the server's log; read it only after the server has stopped.
	env  []string
	said strings.Builder
}

// installation returns one whose database has been migrated before; see [newInstallation].
func installation(t testing.TB) *arbeInstallation {
	t.Helper()
	a := newInstallation(t)
	dbtest.Copy(t, filepath.Join(a.dir, "postgres"))
	return a
}

// newInstallation returns one with an empty directory, as a newcomer has it.
func newInstallation(t testing.TB) *arbeInstallation {
	t.Helper()
	dir := t.TempDir()
	// The embedded Postgres and the boxes run as other users, who must be able to enter the directory.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // as said above
			t.Fatal(err)
		}
	}
	return &arbeInstallation{t: t, dir: filepath.Join(dir, "data"), addr: httpdtest.Address(t, "127.0.0.1")}
}

// start runs the server until it serves.
func (a *arbeInstallation) start() {
	a.t.Helper()
	_ = os.Remove(a.loginFile()) // the server writes it when it serves
	said := &a.said
	a.server = exec.Command(os.Args[0])
	a.server.Env = append(os.Environ(), asServer+"=1", "ARBE_DATA_DIR="+a.dir, "ARBE_ADDR="+a.addr, "ARBE_LOG_LEVEL=warn",
		"ARBE_SANDBOX_MAX_DISK_MB=512") // sandboxes reserve their disks
	a.server.Env = append(a.server.Env, a.env...)
	a.server.Stderr = said
	if err := a.server.Start(); err != nil {
		a.t.Fatal(err)
	}
	process := a.server
	a.t.Cleanup(func() {
		if process.ProcessState == nil {
			_ = process.Process.Signal(os.Interrupt)
			_ = process.Wait()
		}
		if a.t.Failed() {
			a.t.Log(said.String())
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // the file is the process's only signal
		if _, err := os.Stat(a.loginFile()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatal("the server did not start")
		}
	}
}

// kill kills the server, which gets no chance to clean up.
func (a *arbeInstallation) kill() {
	a.t.Helper()
	if err := a.server.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	_ = a.server.Wait() // the error only reports the kill
}

func (a *arbeInstallation) loginFile() string { return filepath.Join(a.dir, "cli.json") }

// client returns an API client that is logged in as the owner, as the command line is.
func (a *arbeInstallation) client() *arbe.Client {
	a.t.Helper()
	return arbe.New("http://"+a.addr, a.token(a.t))
}

func (a *arbeInstallation) token(t testing.TB) string {
	t.Helper()
	var login struct{ Token string }
	text, err := os.ReadFile(a.loginFile())
	if err == nil {
		err = json.Unmarshal(text, &login)
	}
	if err != nil {
		t.Fatal(err)
	}
	return login.Token
}

// thread makes a thread with a number of messages.
func (a *arbeInstallation) thread(c *arbe.Client, messages int) string {
	a.t.Helper()
	homes, err := c.Houses.ListHouses(a.t.Context(), &arbev1.ListHousesRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := c.Threads.CreateThread(a.t.Context(), &arbev1.CreateThreadRequest{HouseId: homes.Houses[0].Id, Name: fmt.Sprint(messages, " messages")})
	if err != nil {
		a.t.Fatal(err)
	}
	g, ctx := errgroup.WithContext(a.t.Context())
	g.SetLimit(100)
	for i := range messages {
		g.Go(func() error {
			payload := entry.NewDraft("", "", entry.Chat{Text: fmt.Sprintf("message %d.", i)}).Payload
			_, err := c.Entries.Append(ctx, &arbev1.AppendRequest{ThreadId: made.Thread.Id, Type: "chat", Payload: string(payload)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		a.t.Fatal(err)
	}
	return made.Thread.Id
}
