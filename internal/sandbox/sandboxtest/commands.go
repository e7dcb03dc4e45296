//go:build linux

package sandboxtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// exitCodes: exit codes follow the shell's conventions.
func exitCodes(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	for _, code := range []int{0, 1, 2, 42, 124, 125, 126, 127, 128, 254, 255} {
		t.Run(fmt.Sprint("exit ", code), func(t *testing.T) {
			if got := b.sh(t, fmt.Sprint("exit ", code)); got.ExitCode != code || got.TimedOut {
				t.Errorf("%+v", got.Result)
			}
		})
	}
	for name, signal := range map[string]int{"HUP": 1, "INT": 2, "ABRT": 6, "KILL": 9, "SEGV": 11, "TERM": 15} {
		t.Run("ended by SIG"+name, func(t *testing.T) {
			if got := b.sh(t, "kill -"+name+" $$"); got.ExitCode != 128+signal {
				t.Errorf("%d, want %d", got.ExitCode, 128+signal)
			}
		})
	}
	b.sh(t, "echo data > plain; mkdir dir; printf '#!/no/such/interpreter\n' > script; printf 'garbage' > garbage; chmod +x script garbage")
	for argv0, want := range map[string]int{
		"no-such-program":      127,
		"/no/such/path":        127,
		"./missing":            127,
		"/workspace/script":    127, // the interpreter does not exist
		"/workspace/plain":     126, // not executable
		"/workspace/plain/x":   127,
		"/workspace/dir":       126,
		"/workspace/garbage":   126, // not a program
		"/workspace/../plain ": 127,
		"zoom":                 127, // names that look like failure messages must not mislead a driver
		"EOF":                  127,
		"signal: killed":       127,
		"permission denied":    127,
		"./EOF":                127,
		"./sh: chdir to cwd":   127,
	} {
		t.Run(argv0, func(t *testing.T) {
			got := b.run(t, sandbox.Command{Argv: []string{argv0}})
			if got.ExitCode != want || got.stdout != "" || !strings.Contains(got.stderr, argv0+": ") {
				t.Errorf("exit code %d, want %d; stdout %q, stderr %q", got.ExitCode, want, got.stdout, got.stderr)
			}
		})
	}
}

// ownWords: a command's output does not affect its result. A driver that reads its runtime's error messages could
// mistake the command's output for them.
func ownWords(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	for _, code := range []int{1, 2, 255} {
		for _, words := range []string{
			"permission denied", "exec /bin/x: permission denied", "exec /bin/x: no such file or directory", "executable file not found in $PATH",
			"signal: killed", "out of memory", "chdir to cwd", "argument list too long", "EOF",
		} {
			t.Run(fmt.Sprint(words, " and ", code), func(t *testing.T) {
				got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", `echo "$0" >&2; exit ` + fmt.Sprint(code), words}})
				if got.ExitCode != code || got.stderr != words+"\n" || got.OutOfMemory {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// invocation: arguments, directory, mask and names are exact.
func invocation(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	t.Run("arguments arrive one by one", func(t *testing.T) {
		args := []string{"a b", "", `"quoted"`, "$HOME", "*", "new\nline", "äöü✓", "-n", `back\slash`}
		got := b.run(t, sandbox.Command{Argv: append([]string{"printf", `%s\0`}, args...)})
		if want := strings.Join(args, "\x00") + "\x00"; got.stdout != want {
			t.Errorf("%q, want %q", got.stdout, want)
		}
	})
	for dir, want := range map[string]string{"": "/workspace", "sub/dir": "/workspace/sub/dir", "/tmp": "/tmp", "/home/agent": "/home/agent", "..": "/"} {
		t.Run("it starts in "+want, func(t *testing.T) {
			b.sh(t, "mkdir -p sub/dir")
			if got := b.run(t, sandbox.Command{Argv: []string{"pwd", "-P"}, Dir: dir}); got.stdout != want+"\n" {
				t.Errorf("%q", got.stdout)
			}
		})
	}
	t.Run("a directory that is missing is the caller's error", func(t *testing.T) {
		_, err := s.driver.Exec(t.Context(), b.ref, sandbox.Command{Argv: []string{"true"}, Dir: "/workspace/missing"})
		wantCode(t, err, fault.Invalid)
	})
	t.Run("new files are readable by everyone and writable by their owner", func(t *testing.T) {
		if got := b.sh(t, "umask"); got.stdout != "0022\n" {
			t.Errorf("umask %q", got.stdout)
		}
	})
	t.Run("the host's name is not shown", func(t *testing.T) {
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if got := b.sh(t, "hostname || cat /proc/sys/kernel/hostname"); strings.TrimSpace(got.stdout) == host || got.stdout == "" {
			t.Errorf("the box is called %q", got.stdout)
		}
	})
	t.Run("its own name resolves to itself", func(t *testing.T) {
		if got := b.sh(t, `getent hosts "$(cat /proc/sys/kernel/hostname)"`); got.ExitCode != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the user has a name and a home", func(t *testing.T) {
		if got := b.sh(t, "cd ~ && pwd && touch .profile && ls -A"); got.stdout != "/home/agent\n.profile\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	for name, cmd := range map[string]sandbox.Command{
		"no program":        {},
		"an empty program":  {Argv: []string{""}},
		"NUL":               {Argv: []string{"echo", "a\x00b"}},
		"invalid UTF-8":     {Argv: []string{"echo", "\xff"}},
		"a bad variable":    {Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}},
		"a NUL in a value":  {Argv: []string{"true"}, Env: map[string]string{"A": "\x00"}},
		"an empty variable": {Argv: []string{"true"}, Env: map[string]string{"": "c"}},
	} {
		t.Run(name+" is the caller's error", func(t *testing.T) {
			_, err := s.driver.Exec(t.Context(), b.ref, cmd)
			wantCode(t, err, fault.Invalid)
		})
	}
}

// environment: a command sees the box's small environment and its own, which no other command sees, because it may
// contain secrets.
func environment(s *suite, t *testing.T) {
	b := s.newBox(t, small)
	names := func(env map[string]string) []string {
		var list []string
		for line := range strings.Lines(b.run(t, sandbox.Command{Argv: []string{"env"}, Env: env}).stdout) {
			name, _, _ := strings.Cut(line, "=")
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
	t.Run("it holds nothing of the server's", func(t *testing.T) {
		own := names(nil)
		for _, name := range own {
			if !slices.Contains([]string{"HOME", "LANG", "LOGNAME", "PATH", "TERM", "USER"}, name) && !strings.HasPrefix(name, "ARBE_BOX_") {
				t.Errorf("unexpected variable %s", name)
			}
		}
		for _, name := range []string{"HOME", "LANG", "PATH", "TERM", "USER"} {
			if !slices.Contains(own, name) {
				t.Errorf("%s is missing", name)
			}
		}
	})
	const secret = "s3cret-value-81d2"
	t.Run("a value reaches the command", func(t *testing.T) {
		env := map[string]string{"TOKEN": secret, "ODD": "a\nb=c 'd'"}
		if got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", `printf '%s|%s' "$TOKEN" "$ODD"`}, Env: env}); got.stdout != secret+"|a\nb=c 'd'" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("a value replaces the box's own", func(t *testing.T) {
		if got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "echo $LANG"}, Env: map[string]string{"LANG": "de_DE.UTF-8"}}); got.stdout != "de_DE.UTF-8\n" {
			t.Errorf("%q", got.stdout)
		}
	})
	t.Run("a value is gone with its command", func(t *testing.T) {
		if slices.Contains(names(nil), "TOKEN") {
			t.Error("the next command has it")
		}
		got := b.sh(t, "grep -rs "+secret[:8]+"-[v]alue /workspace /home/agent /tmp /proc/[0-9]*/cmdline /proc/[0-9]*/environ /run /dev/shm")
		if got.ExitCode == 0 {
			t.Errorf("found in %q", got.stdout)
		}
	})
	t.Run("a value is in no argument list while its command runs", func(t *testing.T) {
		need(t, s.guarantees.SharedHost, sharedHost)
		running, end := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(end)
			stdout := writerFunc(func(p []byte) (int, error) { close(running); return len(p), nil })
			_, _ = s.driver.Exec(t.Context(), b.ref, sandbox.Command{
				Argv: []string{"sh", "-c", "echo; sleep 0.2"}, Env: map[string]string{"TOKEN": secret}, Stdout: stdout,
			})
		}()
		<-running
		if where := hostArguments(secret); where != "" {
			t.Errorf("found in %s", where)
		}
		<-end
	})
}

// hostArguments finds a process of this machine with text in its argument list.
func hostArguments(text string) string {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		if line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && strings.Contains(string(line), text) {
			return p.Name() + ": " + string(line)
		}
	}
	return ""
}
