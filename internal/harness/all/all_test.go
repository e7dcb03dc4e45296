package all_test

import (
	"encoding/json"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/all"
	"github.com/arbe-dev/arbe/internal/harness/harnesstest"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// tools are the tools with which the agents run commands, and their arguments.
var tools = map[string][2]string{"pi": {"bash", "command"}, "codex": {"exec_command", "cmd"}, "claude-code": {"Bash", "command"}, "acp-opencode": {"bash", "command"},
	"acp-gemini": {"run_shell_command", "command"}}

func TestHarnesses(t *testing.T) {
	t.Parallel()
	for _, h := range all.Harnesses {
		t.Run(h.Info().Name, func(t *testing.T) {
			t.Parallel()
			harnesstest.Run(t, h, func(command string) modeltest.Call {
				tool := tools[h.Info().Name]
				text, err := json.Marshal(map[string]string{tool[1]: command})
				if err != nil {
					t.Fatal(err)
				}
				return modeltest.Call{Name: tool[0], Arguments: string(text)}
			})
		})
	}
	if _, ok := all.Named("unheard-of"); ok {
		t.Error("there is a harness of any name")
	}
}
