package sandbox_test

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// networked is a cloud whose boxes reach the server over the network, and in which every command succeeds.
type networked struct {
	doored
	placed []string // files, as "PATH MODE CONTENT"
}

// Door hides that of [doored].
func (d *networked) Door(struct{}) {}

func (d *networked) Upload(_ context.Context, _, path string, mode fs.FileMode, content io.Reader) error {
	text, err := io.ReadAll(content)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.placed = append(d.placed, path+" "+mode.String()+" "+string(text))
	return err
}

// Git in a box that reaches the server over the network asks there, with a token that its credential helper reads from a file.
func TestGitInABoxOnTheNetworkGetsATokenOfTheBox(t *testing.T) {
	t.Parallel()
	d := &networked{doored: doored{cloud: newCloud(t)}}
	b := setupWith(t, d.cloud, map[string]sandbox.Driver{"cloud": d})
	recipe := sandbox.Recipe{Repo: "https://git.example.com/a.git", Git: []sandbox.GitCredential{{Host: "git.example.com", Secret: "TOKEN"}}}
	at := func(door string) *sandbox.Resolver {
		return sandbox.NewResolver(sandbox.Config{
			DB: b.DB, Log: b.log, Threads: b.threads, Drivers: b.drivers, Door: door, Logger: slog.New(slog.DiscardHandler),
			GitToken: func(house, sandbox string) (string, error) { return "token of " + sandbox + " of " + house, nil },
		})
	}
	r := tryOn(t.Context(), b, at(""), b.thread(b.environment(recipe)), "", "true")
	if fault.CodeOf(r.err) != fault.Precondition || !strings.Contains(detail(r.err), "public_url") || len(d.placed) != 0 {
		t.Errorf("without a public address: %s, with the files %q", detail(r.err), d.placed)
	}
	boxes, thread := at("https://arbe.example.com"), b.thread(b.environment(recipe))
	r = tryOn(t.Context(), b, boxes, thread, "", "true")
	if r.err != nil {
		t.Fatal(detail(r.err))
	}
	want := []string{"/home/agent/.arbe/git-token -rw------- username=arbe\npassword=token of " + r.box.ID + " of " + b.scope.House + "\n"}
	if !slices.Equal(d.placed, want) {
		t.Errorf("it has the files %q, want %q", d.placed, want)
	}
	configured := slices.IndexFunc(d.ran, func(cmd sandbox.Command) bool {
		return slices.Contains(cmd.Argv, "credential.https://arbe.example.com.helper") && slices.Contains(cmd.Argv, "url.https://arbe.example.com/git/git.example.com/.insteadOf")
	})
	if configured < 0 {
		t.Errorf("it runs %v", d.ran)
	}
	for _, cmd := range d.ran {
		if strings.Contains(strings.Join(cmd.Argv, " "), "token of") {
			t.Errorf("the token is in an argument of %q", cmd.Argv)
		}
	}
	if r = tryOn(t.Context(), b, boxes, thread, "", "true"); r.err != nil || len(d.placed) != 1 {
		t.Errorf("a command soon after it places %q (%s)", d.placed[1:], detail(r.err))
	}
	if r = tryOn(t.Context(), b, at("https://arbe.example.com"), thread, "", "true"); r.err != nil || len(d.placed) != 2 {
		t.Errorf("on a server that has just started, the box has %q (%s)", d.placed, detail(r.err))
	}
}
