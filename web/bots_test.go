package web

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestTheFormExplainsEachTool(t *testing.T) {
	t.Parallel()
	for _, tool := range entry.Tools {
		if toolLabels[tool] == "" {
			t.Errorf("%s has no label", tool)
		}
	}
	if len(toolLabels) != len(entry.Tools) {
		t.Errorf("there are %d labels for %d tools", len(toolLabels), len(entry.Tools))
	}
}
