package main

import (
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// This file lays out the tables that people read on a terminal. A row never becomes wider than the terminal, because a row that
// wraps makes the columns below it unreadable.

const (
	// gap is the space between two columns.
	gap = 2
	// leastCut is the smallest useful width of a cut column. Below it, ids get a separate line.
	leastCut = 6
)

// idCell matches the cells that name a thing by its id: of a thread, of an entry in it, or of an agent.
var idCell = lazyregexp.New(`^([0-9a-hjkmnp-tv-z]{12}|[0-9a-hjkmnp-tv-z]{20}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(#\d+)?$`)

// row is one item of a list: its id, its view for programs, and its columns for people.
type row struct {
	id      string
	view    any
	columns []string
}

// columnsOf returns the width of a terminal, or a very large one if the terminal does not tell.
func columnsOf(stream io.Writer) int {
	if p, ok := stream.(*pager); ok {
		stream = p.screen
	}
	if f, ok := stream.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return math.MaxInt32
}

// tableFor returns a table whose lines are at most most columns of a terminal wide. It cuts the widest columns, but no ids,
// because people copy them. If the ids leave too little room, each row has two lines: its ids, and the rest.
func tableFor(header []string, rows []row, most int) string {
	lines, ids := [][]string{header}, idColumns(header, rows)
	for _, r := range rows {
		lines = append(lines, r.columns)
	}
	widths := widthsOf(lines)
	if fit(widths, ids, most) {
		return layOut(lines, widths)
	}
	var names, rest [][]string
	for _, line := range lines {
		var named, other []string
		for i, cell := range line {
			if ids[i] {
				named = append(named, cell)
			} else {
				other = append(other, cell)
			}
		}
		names, rest = append(names, named), append(rest, other)
	}
	const indent = "  "
	restWidths := widthsOf(rest)
	none := make([]bool, len(restWidths))
	fit(restWidths, none, most-len(indent))
	var b strings.Builder
	for i := range lines {
		for _, id := range names[i] {
			b.WriteString(id + "\n")
		}
		if line := layOut(rest[i:i+1], restWidths); strings.TrimSpace(line) != "" {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}

// idColumns reports for each column whether it has ids.
func idColumns(header []string, rows []row) []bool {
	ids := make([]bool, len(header))
	for i := range header {
		ids[i] = len(rows) > 0 && !slices.ContainsFunc(rows, func(r row) bool {
			return i >= len(r.columns) || r.columns[i] != r.id && !idCell.MatchString(r.columns[i])
		})
	}
	return ids
}

// widthsOf returns the width of each column.
func widthsOf(lines [][]string) (widths []int) {
	for _, line := range lines {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cellsOf(cell))
		}
	}
	return widths
}

// fit makes the widest columns narrower, but not those to keep, until a row has at most most columns of a terminal. It reports
// whether each of them still shows enough.
func fit(widths []int, keep []bool, most int) bool {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	enough := true
	for total > most {
		widest := -1
		for i, w := range widths {
			if !keep[i] && w > 1 && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
		total--
		enough = enough && widths[widest] >= leastCut
	}
	return enough
}

// layOut returns lines of cells in columns of these widths. Longer cells are cut.
func layOut(lines [][]string, widths []int) string {
	var b strings.Builder
	for _, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			cell = recoloured(cell, func(plain string) string { return cutTo(plain, widths[i]) })
			text.WriteString(cell + strings.Repeat(" ", widths[i]-cellsOf(cell)+gap))
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	return b.String()
}

// cutTo returns a text of at most most columns of a terminal. A text that was cut ends with an ellipsis.
func cutTo(text string, most int) string {
	if cellsOf(text) <= most {
		return text
	}
	end, used, before := 0, 0, rune(0)
	for i, r := range text {
		if startsCharacter(before, r) && used < most { // leaves room for the ellipsis
			end = i
		}
		used += runeCells(before, r)
		before = r
	}
	return strings.TrimRight(text[:end], " ") + "…"
}

// startsCharacter reports whether a text may be cut before r. Accents, and the parts of an emoji, belong to what is before them.
func startsCharacter(before, r rune) bool {
	const joiner = '\u200d'
	return before != joiner && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) && (r < '\U0001F3FB' || r > '\U0001F3FF')
}

// cellsOf returns how many columns of a terminal a text needs. Colours need none. Terminals differ in the width of emoji of several characters;
// cellsOf returns the largest.
func cellsOf(text string) (cells int) {
	before := rune(0)
	for _, r := range uncolour(text) {
		cells += runeCells(before, r)
		before = r
	}
	return cells
}

func runeCells(before, r rune) int {
	const emojiStyle = '\ufe0f' // makes the narrow character before it a wide emoji
	switch {
	case r < 0x300:
		return 1
	case r == emojiStyle && before != 0 && runeCells(0, before) == 1:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
