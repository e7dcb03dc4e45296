// Package all lists the harnesses. A new one is a folder beside it and a line here.
package all

import (
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/harness/acp"
	"github.com/arbe-dev/arbe/internal/harness/claude"
	"github.com/arbe-dev/arbe/internal/harness/codex"
	"github.com/arbe-dev/arbe/internal/harness/pi"
)

// Harnesses returns all harnesses, in the order in which people see them.
var Harnesses = []harness.Harness{pi.Harness{}, codex.Harness{}, claude.Harness{}, acp.OpenCode(), acp.Gemini()}

// Named returns the harness of a runtime; ok is false if there is no such runtime.
func Named(name string) (h harness.Harness, ok bool) {
	for _, h := range Harnesses {
		if h.Info().Name == name {
			return h, true
		}
	}
	return nil, false
}
