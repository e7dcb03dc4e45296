package terminal

import "github.com/arbe-dev/arbe/web/markup"

// grid is one of a terminal's two screens, with the lines that scrolled out of it.
type grid struct {
	// lines ends with the rows of the screen. The number of the first line is base; a line keeps its number.
	lines []*line
	base  int
	// kept is how many lines above the screen are kept.
	kept          int
	cursor, saved cursor
	// top and bottom are the first and the last row of the region that scrolls.
	top, bottom int
}

// cursor is the place of the next character, and its look. After a character in the last column, x is the number of columns, and
// the next character wraps.
type cursor struct {
	x, y int
	look markup.Look
}

// line is a row of a screen.
type line struct {
	cells []cell
	// rest is the look of the columns after cells.
	rest markup.Look
	// changed is the version of the last change.
	changed uint64
}

// cell is a column of a line.
type cell struct {
	// char is the character, and mark the combining character on it, if any. behind stands for the second column of a wide
	// character.
	char, mark rune
	look       markup.Look
}

const behind rune = -1

func newGrid(rows int) grid {
	g := grid{bottom: rows - 1, lines: make([]*line, rows)}
	for i := range g.lines {
		g.lines[i] = &line{}
	}
	return g
}

// extend makes the line have at least n cells.
func (l *line) extend(n int) {
	for len(l.cells) < n {
		l.cells = append(l.cells, cell{char: ' ', look: l.rest})
	}
}

// split replaces a wide character that lies on both sides of a column by spaces.
func (l *line) split(x int) {
	if x > 0 && x < len(l.cells) && l.cells[x].char == behind {
		l.cells[x-1].char, l.cells[x-1].mark = ' ', 0
		l.cells[x].char = ' '
	}
}
