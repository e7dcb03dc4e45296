package main

import (
	"os"
	"testing"
)

func TestADeviceIsNotATerminal(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/dev/null", "/dev/full", "/dev/zero"} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skipf("this machine has no %s", path)
		}
		defer f.Close()
		if isTerminal(f) {
			t.Errorf("%s counts as a terminal", path)
		}
	}
}
