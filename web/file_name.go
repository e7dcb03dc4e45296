package web

import (
	"cmp"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/web/markup"
)

// literalName returns a name of a file on one line, with every character visible.
func literalName(name string) string { return oneLine.Replace(entry.Literal(name)) }

var oneLine = strings.NewReplacer("\n", "<U+000A>", "\t", "<U+0009>")

// fileName returns the path of a file, on one line.
func fileName(f markup.DiffFile) string {
	return cmp.Or(literalName(f.Name), "a file without a name")
}
