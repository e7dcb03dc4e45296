package web

import (
	"net/url"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// maxScopes limits the runs whose changes a page of changes leads to.
const maxScopes = 5

// scopesOf returns the scopes of a thread: its files, and its last runs with changes, latest first.
func scopesOf(thread string, runs []*arbev1.Run) []diffScope {
	list := []diffScope{{"Since the clone", treeChangesPath(thread)}, {"Uncommitted", treeChangesPath(thread) + "?scope=uncommitted"}}
	for _, r := range runs {
		if r.PatchArtifactId != "" && len(list) < maxScopes+2 {
			list = append(list, diffScope{"Run " + decimal(r.Epoch), changesPath(r.PatchArtifactId)})
		}
	}
	return list
}

// scope returns the address of what the page shows, without the choice of a file and of a view.
func (v diffView) scope() string {
	if v.Uncommitted {
		return v.Path + "?scope=uncommitted"
	}
	return v.Path
}

// link returns the address of the page with only one file, or all if it is 0, in one column or side by side.
func (v diffView) link(file int, split bool) string {
	q := url.Values{}
	if v.Uncommitted {
		q.Set("scope", "uncommitted")
	}
	if file > 0 {
		q.Set("file", decimal(file))
	}
	if split {
		q.Set("view", "split")
	}
	if len(q) == 0 {
		return v.Path
	}
	return v.Path + "?" + q.Encode()
}

// splitRow is a row of a hunk side by side: the line before the change at the left, and after it at the right. At is the number
// of a line in its hunk. A side without a line has none.
type splitRow struct{ Left, Right splitCell }

type splitCell struct {
	Line *markup.DiffLine
	At   int
}

// splitRows pairs the removed lines of a hunk with the added ones that follow them.
func splitRows(h markup.DiffHunk) (rows []splitRow) {
	var removed, added []splitCell
	flush := func() {
		for i := range max(len(removed), len(added)) {
			var r splitRow
			if i < len(removed) {
				r.Left = removed[i]
			}
			if i < len(added) {
				r.Right = added[i]
			}
			rows = append(rows, r)
		}
		removed, added = nil, nil
	}
	for i := range h.Lines {
		switch c := (splitCell{&h.Lines[i], i}); c.Line.Kind {
		case '-':
			if len(added) > 0 {
				flush()
			}
			removed = append(removed, c)
		case '+':
			added = append(added, c)
		default:
			flush()
			rows = append(rows, splitRow{c, c})
		}
	}
	flush()
	return rows
}
