package terminal

import (
	"slices"

	"github.com/arbe-dev/arbe/web/markup"
)

// row returns a row of the screen.
func (g *grid) row(t *Terminal, y int) *line { return g.lines[len(g.lines)-t.rows+y] }

// first returns the number of the screen's first row.
func (g *grid) first(t *Terminal) int { return g.base + len(g.lines) - t.rows }

// clear clears a line, with the background of a look.
func (l *line) clear(t *Terminal, look markup.Look) {
	l.cells, l.rest, l.changed = l.cells[:0], look.Ground(), t.version
}

// erase erases the columns from a to b, which is not included.
func (l *line) erase(t *Terminal, a, b int, look markup.Look) {
	l.changed = t.version
	l.split(a)
	if b >= t.columns {
		l.extend(a)
		l.cells, l.rest = l.cells[:a], look.Ground()
		return
	}
	l.extend(b)
	l.split(b)
	for x := a; x < b; x++ {
		l.cells[x] = cell{char: ' ', look: look.Ground()}
	}
}

// scroll moves the rows from top to bottom up by n, or down by -n. If scrolled rows of the main screen go out at its top, they
// are kept.
func (g *grid) scroll(t *Terminal, top, bottom, n int) {
	size := bottom - top + 1
	n = min(max(n, -size), size)
	if n > 0 && top == 0 && g.kept > 0 {
		g.push(t, bottom, n)
		return
	}
	region := g.lines[len(g.lines)-t.rows+top : len(g.lines)-t.rows+bottom+1]
	if n < 0 {
		n += size
		slices.Reverse(region)
		slices.Reverse(region[:size-n])
		slices.Reverse(region[size-n:])
		for _, l := range region[:size-n] {
			l.clear(t, g.cursor.look)
		}
	} else {
		slices.Reverse(region)
		slices.Reverse(region[:size-n])
		slices.Reverse(region[size-n:])
		for _, l := range region[size-n:] {
			l.clear(t, g.cursor.look)
		}
	}
	for _, l := range region {
		l.changed = t.version
	}
}

// push moves the rows from the top to bottom up by n, and keeps the rows that go out.
func (g *grid) push(t *Terminal, bottom, n int) {
	for range n {
		made := &line{}
		made.clear(t, g.cursor.look)
		g.lines = append(g.lines, made)
	}
	// The rows below the region stay where they are on the screen.
	below := g.lines[len(g.lines)-n-(t.rows-1-bottom):]
	if len(below) > n {
		slices.Reverse(below)
		slices.Reverse(below[:n])
		slices.Reverse(below[n:])
		for _, l := range below {
			l.changed = t.version
		}
	}
	g.forget(t)
}

// forget drops the lines beyond those that are kept. It drops many at once, because that moves the others.
func (g *grid) forget(t *Terminal) {
	if over := len(g.lines) - t.rows - g.kept; over > g.kept/4 {
		g.lines, g.base = slices.Delete(g.lines, 0, over), g.base+over
	}
}

// resize makes the screen have another size. Rows that do not fit move up, and rows that are missing come back from above.
func (g *grid) resize(t *Terminal, rows, columns int) {
	for _, l := range g.lines[len(g.lines)-t.rows:] {
		l.split(columns)
		l.cells = slices.Clip(l.cells[:min(len(l.cells), columns)])
	}
	switch more := rows - t.rows; {
	case more < 0:
		// Empty rows below the cursor go first.
		cut := min(-more, t.rows-1-g.cursor.y)
		g.lines = g.lines[:len(g.lines)-cut]
		up := -more - cut
		g.cursor.y, g.saved.y = g.cursor.y-up, max(g.saved.y-up, 0)
		if g.kept == 0 {
			g.lines = slices.Delete(g.lines, 0, up)
		}
	case more > 0:
		back := min(more, len(g.lines)-t.rows)
		g.cursor.y, g.saved.y = g.cursor.y+back, g.saved.y+back
		for range more - back {
			g.lines = append(g.lines, &line{})
		}
	}
	g.top, g.bottom = 0, rows-1
	for _, c := range []*cursor{&g.cursor, &g.saved} {
		c.x, c.y = min(c.x, columns-1), min(max(c.y, 0), rows-1)
	}
	if g.kept > 0 {
		over := max(len(g.lines)-rows-g.kept*5/4, 0)
		g.lines, g.base = slices.Delete(g.lines, 0, over), g.base+over
	}
}
