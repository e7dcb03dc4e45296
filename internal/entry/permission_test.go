package entry_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

// A runner names the tool, and people read that name in lists and before they approve.
func TestTheToolOfAQuestionIsAName(t *testing.T) {
	t.Parallel()
	for tool, valid := range map[string]bool{
		"Bash": true, "mcp__server__tool": true, "AskUserQuestion": true,
		"": false, strings.Repeat("x", 201): false, "run\ncommand": false, "Ba\u202esh": false, "Ba\x1b[2Jsh": false,
	} {
		asked := entry.NewDraft("run1.0.asked", "", entry.PermissionAsked{Epoch: 1, AgentID: "a", CallID: "run1.0", Tool: tool, Arguments: []byte("{}")})
		if err := entry.Check(asked, entry.Runner); (err == nil) != valid {
			t.Errorf("%.20q: %v", tool, err)
		}
	}
}
