//go:build linux

package sandboxtest

import (
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
)

// leftovers: whatever a command leaves running in the background, its box can run the next commands.
func leftovers(s *suite, t *testing.T) {
	need(t, s.guarantees.OutlastsLeftovers, "a box outlasts what is left in it")
	hostile := map[string]string{
		"forks without end":            `perl -e 'exit if fork; while (1) { fork }'`,
		"forks in a shell without end": `bash -c 'bomb() { bomb | bomb & }; bomb' 2>/dev/null; true`,
		"kills without end":            `(setsid sh -c 'while :; do kill -9 -1; done' &); sleep 0.3`,
		"stops without end":            `(setsid sh -c 'while :; do kill -STOP -1; done' &)`,
		"kills and forks without end":  `perl -e 'exit if fork; while (1) { fork; kill 9, -1 }'; sleep 0.3`,
	}
	for name, script := range hostile {
		t.Run("one that "+name, func(t *testing.T) {
			t.Parallel()
			b := s.newBox(t, sandbox.Limits{MemoryMB: 128, DiskMB: 32, PIDs: 64, CPUs: 1})
			b.sh(t, "echo kept > kept")
			const limit = 10 * time.Second
			run := func(script string) outcome {
				begin := time.Now()
				got := b.run(t, sandbox.Command{Argv: []string{"bash", "-c", script}, Timeout: limit})
				if took := time.Since(begin); took > limit+time.Minute {
					t.Errorf("with a limit of %v, a command took %v", limit, took)
				}
				return got
			}
			run(script)
			var got outcome
			for range 6 { // the first may be killed; without control groups others may be too, especially on a busy machine
				if got = run("/bin/cat kept | /bin/cat"); got.stdout == "kept\n" {
					return
				}
			}
			t.Errorf("the sixth command after it: %+v", got)
		})
	}
	t.Run("a quiet one is left alone when a command uses up the processes", func(t *testing.T) {
		// A box without its own limit may run out of processes because of another one, and be restarted.
		need(t, s.guarantees.MemoryLimit, "process limit")
		t.Parallel()
		b := s.newBox(t, sandbox.Limits{MemoryMB: 128, DiskMB: 32, PIDs: 64, CPUs: 1})
		b.sh(t, "sleep 4701 &")
		b.run(t, sandbox.Command{Argv: []string{"perl", "-e", "while (1) { fork }"}, Timeout: time.Second / 2})
		b.sh(t, "kill -9 $$")
		if got := b.sh(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]701'"); got.stdout != "1\n" {
			t.Errorf("%q processes are left", got.stdout)
		}
	})
}

// secrets: no other command can read the environment that a command was given.
func secrets(s *suite, t *testing.T) {
	need(t, s.guarantees.SecretsSeparate, "secrets are each command's own")
	b := s.newBox(t, small)
	const secret = "s3cret-value-5c1f"
	// A background reader records every environment that it can read except its own, until the file over is there. It records
	// each only once, so that it does not fill the disk.
	const reader = `perl -e 'exit if fork; close STDOUT; my %had; my $end = time + 100;
		until (-e "/workspace/over" || time > $end) { for my $p (glob "/proc/[0-9]*") { next if $p eq "/proc/$$";
			for my $name ("environ", "mem", "maps") {
				if (open(my $f, "<", "$p/$name")) { local $/; my $x = <$f> // ""; if (!$had{"$name $x"}++ && open(my $o, ">>", "/workspace/seen")) { print $o "$name $x\n" } } } } } open(my $o, ">", "/workspace/ended")'`
	for name, env := range map[string]map[string]string{"without an environment of its own": nil, "with one": {"OTHER": "value"}} {
		t.Run("a leftover of a command "+name+" reads no later command's", func(t *testing.T) {
			b.sh(t, "rm -f seen over ended")
			b.run(t, sandbox.Command{Argv: []string{"sh", "-c", reader}, Env: env})
			for range 3 { // each lives long enough for a reader that searches all processes again and again
				b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "sleep 0.1; :"}, Env: map[string]string{"TOKEN": secret}})
			}
			if got := b.sh(t, "touch over; for i in $(seq 600); do test -e ended && exit; sleep 0.05; done; exit 1"); got.ExitCode != 0 {
				t.Error("the reader did not end")
			}
			if got := b.sh(t, "wc -c < seen"); got.stdout == "0\n" || got.ExitCode != 0 {
				if env == nil { // commands without an environment can read each other's environments
					t.Errorf("it read nothing at all: this test tests nothing (%+v)", got)
				}
			}
			if got := b.sh(t, "grep -ac "+secret+" seen"); strings.TrimSpace(got.stdout) != "0" && got.ExitCode != 2 {
				t.Errorf("it was read %s times", got.stdout)
			}
		})
	}
	t.Run("a command reads no earlier command's", func(t *testing.T) {
		b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "sleep 4801 &"}, Env: map[string]string{"TOKEN": secret}})
		for _, env := range []map[string]string{nil, {"OTHER": "value"}} {
			got := b.run(t, sandbox.Command{Argv: []string{"sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c " + secret[:8]}, Env: env})
			if got.stdout != "0\n" {
				t.Errorf("found %s times", got.stdout)
			}
		}
	})
	b.verify(t, []check{
		{name: "a command sees its own environment and its children's", script: "A=1 sleep 4802 & for i in $(seq 600); do tr '\\0' '\\n' < /proc/$!/environ | grep -q '^A=1' && break; sleep 0.05; done; cat /proc/$!/environ | tr '\\0' '\\n' | grep -c '^A=1'; cat /proc/self/environ | tr '\\0' '\\n' | grep -c ^HOME=", stdout: "1\n1\n"},
		{name: "commands see and end each other's processes", script: "pkill -f 'sleep [4]801'; pkill -f 'sleep [4]802'; for i in $(seq 600); do ps ax | grep -q 'sleep [4]80' || break; sleep 0.05; done; ps ax | grep -c 'sleep [4]80'; true", stdout: "0\n"},
		{name: "files move between directories", script: "mkdir -p a b && echo moved > a/f && mv a/f b/f && ln b/f a/g && cat a/g", stdout: "moved\n"},
		{name: "one without secrets looks into another one", script: "readlink /proc/self/fd/0 > /dev/null && sleep 4803 & for i in $(seq 600); do readlink /proc/$!/exe | grep -q sleep && break; sleep 0.05; done; readlink /proc/$!/exe | grep -c sleep", stdout: "1\n"},
	})
}
