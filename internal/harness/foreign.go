package harness

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// A transcript may come from another agent, whose names some provider refuses.

var safeName = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

var unsafe = lazyregexp.New(`[^A-Za-z0-9_-]`)

// CallID returns the id of a tool call in a form that every provider accepts. The same id always has the same form.
func CallID(id string) string {
	if safeName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// ToolName returns the name of a tool in a form that every provider accepts.
func ToolName(name string) string {
	if name == "" {
		return "unknown"
	}
	name = unsafe.ReplaceAllString(name, "_")
	return name[:min(len(name), 64)]
}
