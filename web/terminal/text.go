package terminal

import (
	"unicode"

	"golang.org/x/text/width"
)

// widthOf returns how many columns a character takes: 0 for one that combines with the previous character, and -1 for one that
// is not shown.
func widthOf(c rune) int {
	switch {
	case c < 0x7f:
		return 1
	case c < 0xa0, unicode.Is(unicode.Cf, c):
		return -1 // marks of direction, too, which would show text in another order
	case c < 0x300:
		return 1
	case unicode.In(c, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(c).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// lineDrawing are the characters from ` to ~ in the set of line drawing.
var lineDrawing = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// put shows a character.
func (t *Terminal) put(c rune) {
	if t.lineDrawing[t.shifted] && c >= '`' && c <= '~' {
		c = lineDrawing[c-'`']
	}
	g := t.now
	w := widthOf(c)
	switch {
	case w < 0:
		return
	case w == 0:
		t.combine(c)
		return
	}
	t.last = c
	cur := &g.cursor
	if cur.x+w > t.columns {
		if t.modes.noWrap {
			cur.x = t.columns - w
		} else {
			cur.x = 0
			t.down()
		}
	}
	l := g.row(t, cur.y)
	if t.modes.insert {
		t.insert(l, w)
	}
	l.extend(cur.x + w)
	l.split(cur.x)
	l.split(cur.x + w)
	l.cells[cur.x] = cell{char: c, look: cur.look}
	if w == 2 {
		l.cells[cur.x+1] = cell{char: behind, look: cur.look}
	}
	l.changed = t.version
	cur.x += w
}

// combine adds a combining character to the one before the cursor, which keeps only one.
func (t *Terminal) combine(c rune) {
	cur := t.now.cursor
	l := t.now.row(t, cur.y)
	x := cur.x - 1
	if x > 0 && x < len(l.cells) && l.cells[x].char == behind {
		x--
	}
	if x < 0 || x >= len(l.cells) || l.cells[x].mark != 0 {
		return
	}
	l.cells[x].mark, l.changed = c, t.version
}

// insert makes room for n columns at the cursor.
func (t *Terminal) insert(l *line, n int) {
	x := min(t.now.cursor.x, t.columns-1)
	n = min(n, t.columns-x)
	l.changed = t.version
	if x >= len(l.cells) {
		return
	}
	l.split(x)
	l.split(t.columns - n)
	for range n {
		l.cells = append(l.cells, cell{})
	}
	copy(l.cells[x+n:], l.cells[x:])
	for i := x; i < x+n; i++ {
		l.cells[i] = cell{char: ' ', look: t.now.cursor.look.Ground()}
	}
	l.cells = l.cells[:min(len(l.cells), t.columns)]
}

// remove removes n columns at the cursor.
func (t *Terminal) remove(l *line, n int) {
	x := min(t.now.cursor.x, t.columns-1)
	l.changed = t.version
	l.extend(t.columns)
	n = min(n, t.columns-x)
	l.split(x)
	l.split(x + n)
	l.cells = append(l.cells[:x], l.cells[x+n:]...)
	l.rest = t.now.cursor.look.Ground()
}

// down moves the cursor one row down, and scrolls at the end of the region.
func (t *Terminal) down() {
	g := t.now
	switch {
	case g.cursor.y == g.bottom:
		g.scroll(t, g.top, g.bottom, 1)
	case g.cursor.y < t.rows-1:
		g.cursor.y++
	}
}

// up moves the cursor one row up, and scrolls at the beginning of the region.
func (t *Terminal) up() {
	g := t.now
	switch {
	case g.cursor.y == g.top:
		g.scroll(t, g.top, g.bottom, -1)
	case g.cursor.y > 0:
		g.cursor.y--
	}
}

// format handles a control character.
func (t *Terminal) format(c rune) {
	cur := &t.now.cursor
	switch c {
	case '\b':
		cur.x = max(min(cur.x, t.columns-1)-1, 0)
	case '\t':
		cur.x = t.nextTab(cur.x)
	case '\n', '\v', '\f':
		t.down()
	case '\r':
		cur.x = 0
	case 0x0e:
		t.shifted = 1
	case 0x0f:
		t.shifted = 0
	}
}

// isTab reports whether a column has a tab stop.
func (t *Terminal) isTab(x int) bool {
	if t.tabs == nil {
		return x%8 == 0
	}
	return t.tabs[x]
}

func (t *Terminal) nextTab(x int) int {
	for x++; x < t.columns-1 && !t.isTab(x); x++ {
	}
	return min(x, t.columns-1)
}

func (t *Terminal) previousTab(x int) int {
	for x--; x > 0 && !t.isTab(x); x-- {
	}
	return max(x, 0)
}

// setTab sets or removes a tab stop.
func (t *Terminal) setTab(x int, on bool) {
	if t.tabs == nil {
		t.tabs = map[int]bool{}
		for i := 0; i < MaxColumns; i += 8 {
			t.tabs[i] = true
		}
	}
	t.tabs[x] = on
}
