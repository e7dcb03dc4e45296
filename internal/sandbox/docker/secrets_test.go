//go:build linux

package docker_test

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/docker/dockertest"
)

// without runs a line of shell in a box without a driver, and returns its output.
func without(t *testing.T, e *dockertest.Engine, ref, user, script string) string {
	t.Helper()
	made, err := e.ExecCreate(t.Context(), ref, client.ExecCreateOptions{User: user, WorkingDir: sandbox.Workspace, Cmd: []string{"sh", "-c", script}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	attached, err := e.ExecAttach(t.Context(), made.ID, client.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	var said strings.Builder
	if _, err := stdcopy.StdCopy(&said, io.Discard, attached.Reader); err != nil {
		t.Fatal(err)
	}
	return said.String()
}

// wantNoSecrets waits until no file of a secret is left in a box.
func wantNoSecrets(t *testing.T, e *dockertest.Engine, ref string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got := without(t, e, ref, "1000", "ls -A "+sandbox.SecretFolder)
		if got == "" {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("there are %q", got)
		}
	}
}

const untilEnd = "touch begun; until test -e end; do sleep 0.05; done"

var aSecret = map[string]string{"key": "s3cret-of-a-container"}

func TestTheFilesOfASecretGoWhileNoServerIsThere(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := open(t, e.Host())
	ref := create(t, opened(t, e.Host()), "secret-alone")
	if err := d.Launch(t.Context(), ref, "one", sandbox.Command{Argv: []string{"sh", "-c", untilEnd}, Secrets: aSecret}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := without(t, e, ref, "1000", "until test -e begun; do sleep 0.05; done; cat "+sandbox.SecretFolder+"/key"); got != aSecret["key"] {
		t.Errorf("while its command runs, it is %q", got)
	}
	without(t, e, ref, "1000", "touch end")
	wantNoSecrets(t, e, ref)
}

func TestTheFilesOfASecretGoHoweverItsCommandEnds(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "secret-ends")
	for name, script := range map[string]string{
		"everything is killed":              "kill -9 -1",
		"a process stays":                   "sleep 1000 >/dev/null 2>&1 &",
		"its guard is killed":               "pkill -9 -f guard; true",
		"what the guards hold is destroyed": "rm -rf /var/lib/arbe/held; true",
		"what it holds is changed":          `for f in /var/lib/arbe/held/*; do echo '["other"]' > $f; done; true`,
	} {
		t.Run(name, func(t *testing.T) {
			const missing = 9
			result, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"sh", "-c", fmt.Sprintf("test -s %s/key || exit %d; %s", sandbox.SecretFolder, missing, script)}, Secrets: aSecret})
			if err != nil || result.ExitCode == missing {
				t.Fatalf("the command ends with %+v (%v)", result, err)
			}
			wantNoSecrets(t, e, ref)
		})
	}
	t.Run("its directory does not exist", func(t *testing.T) {
		_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"true"}, Dir: "/nowhere", Secrets: aSecret})
		wantCode(t, err, fault.Invalid)
		wantNoSecrets(t, e, ref)
	})
	t.Run("it never starts", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.Exec(ctx, ref, sandbox.Command{Argv: []string{"true"}, Secrets: aSecret})
		if err == nil {
			t.Error("a command runs for a caller that is gone")
		}
		wantNoSecrets(t, e, ref)
	})
}

// Neither the container's disk nor the engine's description of it has the value.
func TestTheFilesOfASecretAreInMemory(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	d := opened(t, e.Host())
	ref := create(t, d, "secret-memory")
	if err := d.Launch(t.Context(), ref, "one", sandbox.Command{Argv: []string{"sh", "-c", untilEnd}, Secrets: aSecret}); err != nil {
		t.Fatal(fault.From(err).Detail())
	}
	found := without(t, e, ref, "0", "grep -rsl s3cret-of-a-containe[r] / --exclude-dir=proc --exclude-dir=sys; true")
	if found != sandbox.SecretFolder+"/key\n" && found != "" { // root has no rights in the box, so it need not read the file
		t.Errorf("it is in %q", found)
	}
	exported, err := e.ContainerExport(t.Context(), ref, client.ContainerExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer exported.Close()
	disk, err := io.ReadAll(exported)
	if err != nil || strings.Contains(string(disk), aSecret["key"]) {
		t.Errorf("the disk has it (%v)", err)
	}
	if _, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"touch", "end"}}); err != nil {
		t.Fatal(err)
	}
	wantNoSecrets(t, e, ref)
}

// A box that is stopped loses the files, but a command that has not been launched yet receives them.
func TestACommandNeverStartsWithoutItsFiles(t *testing.T) {
	t.Parallel()
	e := sharedEngine(t)
	w := disturb(t, e)
	d := opened(t, w.host())
	ref := create(t, d, "secret-stopped")
	run(t, d, ref, "true")
	runs := 0
	end := w.fail(failure{on: regexp.MustCompile("^POST /containers/" + ref + "/exec$"), before: func() {
		if runs++; runs == 2 { // the first one has placed the files
			if _, err := e.ContainerStop(context.Background(), ref, client.ContainerStopOptions{Timeout: new(int)}); err != nil {
				t.Error(err)
			}
		}
	}})
	var said strings.Builder
	_, err := d.Exec(t.Context(), ref, sandbox.Command{Argv: []string{"cat", sandbox.SecretFolder + "/key"}, Secrets: aSecret, Stdout: &said})
	end()
	if err != nil || said.String() != aSecret["key"] {
		t.Errorf("it reads %q (%v)", said.String(), err)
	}
	wantNoSecrets(t, e, ref)
}
