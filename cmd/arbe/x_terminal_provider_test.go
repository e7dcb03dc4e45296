//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/arbe-dev/arbe/internal/sandbox/sprite/spritetest"
)

// TestATerminalAtAProvider types into arbe x -it in a sandbox of a provider, across a crash of the server.
func TestATerminalAtAProvider(t *testing.T) {
	t.Parallel()
	account := spritetest.New(t)
	server := startUp(t, "SPRITES_TOKEN="+spritetest.Token, "ARBE_SPRITE_API_URL="+account.URL)
	server.arbe(t, "env", "create", "rented", "--driver", "sprite", "--egress", "open", "--quiet")
	thread := server.arbe(t, "thread", "create", "--env", "rented", "--quiet")

	s := server.typist(t, "x", "-it", "--keep", "-t", thread)
	s.types("PS1='$ '; stty size; echo $TERM; tty\r")
	s.shows("30 90\r\nvt100\r\n/dev/pts/")
	s.resizes(41, 101)
	s.types("until test \"$(stty size)\" = '41 101'; do sleep 0.05; done; echo it is lar'ger'\r")
	s.shows("it is larger\r\n")
	s.types("trap 'echo inter'rupted INT; sh -c \"echo rea''dy; exec sleep 1000\"\r")
	s.shows("ready\r\n")
	s.types("\x03")
	s.shows("^C")
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		s.types("/usr/bin/python3 -q\r")
		s.shows(">>> ")
		s.types("6 * 7\r")
		s.shows("\n42\r\n")
		s.shows(">>> ") // a Ctrl-D before the prompt would not be read by Python
		s.types("\x04")
		s.shows("$ ")
	}
	if _, err := exec.LookPath("vim"); err == nil {
		s.types("vim -u NONE a.txt\r")
		s.shows("[New")
		s.types("ihello from vim\x1b:wq\r")
		s.shows("written")
		s.shows("$ ") // until then, vim may read what is typed
		s.types("cat a.t*\r")
		s.shows("hello from vim\r\n")
	}
	server.kill(t)
	server.start(t)
	s.types("echo st'ill' there\r")
	s.shows("still there\r\n")
	s.types("exit 7\r")
	s.exits(7)
}
