package program_test

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"testing"

	"github.com/arbe-dev/arbe/internal/runner/program"
)

// maxSize is the largest program that is put into a sandbox.
const maxSize = 8_000_000

func TestProgramIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "../../sandbox/build", "-check", "-small", "-later", "internal/entry,internal/fault",
		"arbe-runner", "../../../cmd/arbe-runner").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestProgramIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	for goarch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		text := program.Runner(goarch)
		if len(text) == 0 || len(text) > maxSize {
			t.Errorf("the program for %s has %d bytes", goarch, len(text))
		}
		file, err := elf.NewFile(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if file.Machine != machine || file.Section(".interp") != nil {
			t.Errorf("the program for %s is for %s, or not static", goarch, file.Machine)
		}
	}
	if program.Runner("mips") != nil {
		t.Error("there is a program for a processor that nobody has")
	}
}
