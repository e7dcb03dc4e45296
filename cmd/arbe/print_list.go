package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/arbe-dev/arbe/internal/entry"
)

// list prints rows: ids with --quiet, one JSON array with --json, else a table. On a terminal, the table has a header and
// fits the width. Elsewhere it has no header, which a script would take for a row, and nothing is cut.
func (a *app) list(header []string, rows []row) error {
	if a.json {
		views := make([]any, len(rows))
		for i, r := range rows {
			views[i] = r.view
		}
		return a.printJSON(views)
	}
	for _, r := range rows {
		for i, c := range r.columns {
			r.columns[i] = entry.PrintableLine(c)
		}
	}
	if !a.quiet && len(rows) > 0 && isTerminal(a.out) {
		_, err := io.WriteString(a.out, tableFor(header, rows, columnsOf(a.out)))
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if a.quiet {
			r.columns = []string{entry.PrintableLine(r.id)}
		}
		fmt.Fprintln(w, strings.Join(r.columns, "\t"))
	}
	return w.Flush()
}
