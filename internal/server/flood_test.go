package server_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// floodVariable sets how many MiB TestAFloodOfOutput prints, with the server's default settings:
//
//	ARBE_TEST_FLOOD_MB=1024 go test -v -run TestAFloodOfOutput ./internal/server
const floodVariable = "ARBE_TEST_FLOOD_MB"

// A command that prints a lot neither fills the server's memory nor delays another house. Its result has the beginning, the end
// and the size of the output, and says that its artifact has only the beginning.
func TestAFloodOfOutput(t *testing.T) {
	t.Parallel()
	const maxGrowth = 144 << 20 // with the race detector; without, it was 28 MiB
	mb, kept, limit := 160, int64(4<<20), "4MiB"
	if text := os.Getenv(floodVariable); text != "" {
		var err error
		if mb, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		kept, limit = 100<<20, ""
	}
	cfg := served(t)
	var err error
	if cfg.SecretKey, err = secret.NewKey(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{asServer + "=1"}
	if limit != "" {
		cmd.Env = append(cmd.Env, "ARBE_ARTIFACT_MAX_SIZE="+limit)
	}
	process := startProgram(t, cfg, cmd)
	c := client(t, cfg)
	floods, other := newThread(t, c), newHouseThread(t, c)
	output(t, cfg, other, "true") // its sandbox is there
	output(t, cfg, floods, "true")

	pid := process.Process.Pid
	before := memory(t, pid, "VmRSS")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err) // the peak counts from here
	}
	const line = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,\n"
	size := int64(mb) << 20
	began := time.Now()
	flood := run(t, c, floods, fmt.Sprintf("yes %s | head -c %d; exit 3", strings.TrimSpace(line), size))
	awaitDelta(t, c, floods, flood.ResultId)
	last, took := commandsUntil(t, cfg, other, resultLater(t, c, floods, flood.ResultId))
	all := time.Since(began)
	peak := memory(t, pid, "VmHWM")
	t.Logf("%d MiB in %v; the server had %d MiB before, and at most %d MiB; %d commands of another house took %v in the middle, %v at most",
		mb, all.Round(time.Millisecond), before>>20, peak>>20, len(took), took[len(took)/2], took[len(took)-1])
	if peak-before > maxGrowth {
		t.Errorf("the server grew by %d MiB", (peak-before)>>20)
	}
	r := decode[entry.CommandResult](t, last)
	if r.ExitCode != 3 || r.Error != "" || r.OutputBytes != size || !r.Truncated || !r.ArtifactPart && size > kept || r.ArtifactBytes != min(size, kept) {
		t.Errorf("exit code %d %q; of %d bytes, %d are kept: %s", r.ExitCode, r.Error, r.OutputBytes, r.ArtifactBytes, r.Outcome())
	}
	end := strings.Repeat(line, 2) + line[:size%int64(len(line))]
	if !strings.HasPrefix(r.Output, line+line) || !strings.HasSuffix(end, r.OutputTail[max(0, len(r.OutputTail)-len(line)):]) {
		t.Errorf("it begins with %.100q and ends with %q", r.Output, r.OutputTail[max(0, len(r.OutputTail)-100):])
	}
}

// newHouseThread returns a thread in a new house.
func newHouseThread(t *testing.T, c *arbe.Client) string {
	t.Helper()
	made, err := c.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: "Another"})
	if err != nil {
		t.Fatal(err)
	}
	created, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: made.House.Id})
	if err != nil {
		t.Fatal(err)
	}
	return created.Thread.Id
}

// resultLater returns a channel for an entry of a thread. The channel is closed without it if the entry does not come.
func resultLater(t *testing.T, c *arbe.Client, thread, id string) <-chan *arbev1.Entry {
	found := make(chan *arbev1.Entry, 1)
	go func() {
		defer close(found)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
		defer cancel()
		for event, err := range c.Tail(ctx, thread, 0) {
			if err != nil {
				return
			}
			if event.GetEntry().GetId() == id {
				found <- event.GetEntry()
				return
			}
		}
	}()
	return found
}

// commandsUntil runs a command in a thread each second until an entry comes. It returns the entry, and how long the commands took,
// shortest first.
func commandsUntil(t *testing.T, cfg server.Config, thread string, comes <-chan *arbev1.Entry) (last *arbev1.Entry, took []time.Duration) {
	t.Helper()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for last == nil {
		asked := time.Now()
		if got := output(t, cfg, thread, "echo works"); got != "works\n" {
			t.Fatalf("the other house's command printed %q", got)
		}
		took = append(took, time.Since(asked))
		select {
		case e, ok := <-comes:
			if last = e; !ok {
				t.Fatal("the flood does not end")
			}
		case <-second.C:
		}
	}
	slices.Sort(took)
	return last, took
}

// memory returns a size from a process's status, in bytes.
func memory(t *testing.T, pid int, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("the process has no %s", name)
	return 0
}
