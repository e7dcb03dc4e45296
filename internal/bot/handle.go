package bot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// reserved lists the handles that no bot may have, because people expect them to mean something else.
var reserved = []string{"here", "all", "channel", "everyone", "me", "house", "system"}

// cleanHandle returns a handle in its stored form. Handles are ASCII, so that letters of other scripts cannot imitate one.
// Handles that still look alike are equal under [looks].
func cleanHandle(written string) (string, error) {
	handle := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(written), "@"))
	if !entry.IsHandle(handle) {
		return "", fault.Newf(fault.Invalid, "choose one such as code-reviewer",
			"handle: it must be 1 to %d letters a to z, digits and hyphens, and begin and end with a letter or a digit", entry.MaxHandle)
	}
	if slices.ContainsFunc(reserved, func(r string) bool { return looks(r) == looks(handle) }) {
		return "", fault.Newf(fault.Invalid, "choose another handle", "handle: @%s is reserved, or looks like a reserved handle", handle)
	}
	return handle, nil
}

// looks normalizes a handle so that handles that look alike are equal. The column bots.looks is generated in the same way,
// and is unique in a house.
func looks(handle string) string {
	handle = strings.NewReplacer("0", "o", "1", "l", "-", "").Replace(handle)
	return strings.ReplaceAll(strings.ReplaceAll(handle, "rn", "m"), "vv", "w")
}

// proposedHandle returns the nth handle to try for a bot with this name.
func proposedHandle(name string, n int) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	handle := strings.Join(words, "-")
	handle = strings.Trim(handle[:min(len(handle), 30)], "-")
	if handle == "" {
		handle = "bot"
	}
	if n > 1 {
		handle += fmt.Sprintf("-%d", n)
	}
	if _, err := cleanHandle(handle); err != nil { // reserved
		handle += "-bot"
	}
	return handle
}
