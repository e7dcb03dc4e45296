package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/proto/arbe/v1/arbev1connect"
)

// environmentServer is a server with one environment. It records the name that a client gives the environment.
type environmentServer struct {
	arbev1connect.UnimplementedEnvironmentServiceHandler
	mu   sync.Mutex
	name string
}

func (s *environmentServer) GetEnvironment(_ context.Context, req *arbev1.GetEnvironmentRequest) (*arbev1.GetEnvironmentResponse, error) {
	return &arbev1.GetEnvironmentResponse{Environment: &arbev1.Environment{Id: req.GetId(), Name: "before"}}, nil
}

func (s *environmentServer) UpdateEnvironment(_ context.Context, req *arbev1.UpdateEnvironmentRequest) (*arbev1.UpdateEnvironmentResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = req.GetName()
	return &arbev1.UpdateEnvironmentResponse{Environment: &arbev1.Environment{Id: req.GetId(), Name: req.GetName()}}, nil
}

// A terminal sends Ctrl-C to arbe too, not only to the editor that it is for.
func TestCtrlCInAnEditorKeepsTheText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, editor string
		code         int
		want         string // the environment's name afterwards
		says         string
	}{
		{name: "an editor that goes on", editor: `cat "$FIFO" >`, want: "after"},
		{
			name: "an editor that it ends", editor: `sh -c 'cat "$FIFO" >"$1"; kill -INT $$' editor`,
			code: fault.Canceled.ExitCode(), says: `(?m)^your text is in (.+\.yaml)$`,
		},
		{
			name: "what cannot be used", editor: `sh -c '{ cat "$FIFO"; echo nonsense: 1; } >"$1"' editor`,
			code: fault.Invalid.ExitCode(), says: `(?m)^your text is in (.+\.yaml); correct it, and use it with: arbe env edit`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The other end of a new terminal is a terminal too.
			terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
			if err != nil {
				t.Skip("this machine makes no terminals")
			}
			defer terminal.Close()
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			s := &environmentServer{}
			mux := http.NewServeMux()
			mux.Handle(arbev1connect.NewEnvironmentServiceHandler(s))
			server := httptest.NewServer(mux)
			defer server.Close()

			env := map[string]string{"ARBE_HOST": server.URL, "ARBE_DATA_DIR": t.TempDir(), "HOME": t.TempDir(), "EDITOR": "FIFO=" + fifo + "; export FIFO; " + c.editor}
			var said strings.Builder
			a := &app{in: terminal, out: &strings.Builder{}, err: &said, getenv: func(name string) string { return env[name] }}
			ctx, end := context.WithCancel(t.Context())
			a.signals = &signals{end: end}
			ended := make(chan int)
			go func() { ended <- a.run(ctx, []string{"env", "edit", "0123456789ab"}) }()
			// Opening the pipe waits until the editor reads.
			text, err := os.OpenFile(fifo, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			a.signals.take(os.Interrupt)
			if _, err := text.WriteString("name: after\n"); err != nil {
				t.Error(err)
			}
			text.Close()
			if code := <-ended; code != c.code {
				t.Errorf("it exited with %d, want %d", code, c.code)
			}
			if s.name != c.want {
				t.Errorf("the environment has the name %q, want %q", s.name, c.want)
			}
			if c.says == "" {
				return
			}
			found := regexp.MustCompile(c.says).FindStringSubmatch(said.String())
			if found == nil {
				t.Fatalf("it says %q, want %s", said.String(), c.says)
			}
			defer os.Remove(found[1])
			if kept, err := os.ReadFile(found[1]); err != nil || !strings.HasPrefix(string(kept), "name: after\n") {
				t.Errorf("%s has %q (%v), want what the person wrote", found[1], kept, err)
			}
		})
	}
}
