package terminal

import "strconv"

// apply carries out a control sequence that ends with a character.
func (t *Terminal) apply(final rune) {
	p := &t.parser
	switch {
	case p.between == '!' && final == 'p': // soft reset
		t.modes, t.now.cursor.look, t.now.top, t.now.bottom = modes{}, newGrid(1).cursor.look, 0, t.rows-1
	case p.between != 0:
	case p.private == '?' && (final == 'h' || final == 'l'):
		for _, n := range p.parameters {
			t.setPrivate(n, final == 'h')
		}
	case p.private == '?' && final == 'n' && t.number(0, 0) == 6:
		t.reportCursor("?")
	case p.private == '>' && final == 'c':
		t.reply("\x1b[>1;10;0c")
	case p.private == '?' && (final == 'J' || final == 'K'), p.private == 0:
		t.plain(final)
	}
}

// plain carries out a sequence that is not private.
func (t *Terminal) plain(final rune) {
	switch {
	case t.move(final), t.edit(final):
		return
	}
	cur := &t.now.cursor
	switch final {
	case 'm':
		cur.look.Change(t.looks())
	case 'h', 'l':
		if t.number(0, 0) == 4 {
			t.modes.insert = final == 'h'
		}
	case 'r':
		t.region()
	case 's':
		t.now.saved = *cur
	case 'u':
		t.restore()
	case 'g':
		switch t.number(0, 0) {
		case 0:
			t.setTab(min(cur.x, t.columns-1), false)
		case 3:
			t.tabs = map[int]bool{}
		}
	case 'c':
		if t.number(0, 0) == 0 {
			t.reply("\x1b[?62;22c")
		}
	case 'n':
		switch t.number(0, 0) {
		case 5:
			t.reply("\x1b[0n")
		case 6:
			t.reportCursor("")
		}
	}
}

// looks returns the parameters of SGR without the forms that have colons: 4:3 is an underline, and 38:2::r:g:b a colour.
func (t *Terminal) looks() (plain []int) {
	p := &t.parser
	for i := 0; i < len(p.parameters); {
		end := i + 1
		for end < len(p.parameters) && p.sub[end] {
			end++
		}
		group := p.parameters[i:end]
		switch {
		case len(group) == 1:
			plain = append(plain, group[0])
		case group[0] == 4 && group[1] == 0:
			plain = append(plain, 24)
		case group[0] == 4:
			plain = append(plain, 4)
		case (group[0] == 38 || group[0] == 48) && len(group) == 6 && group[1] == 2:
			plain = append(plain, group[0], 2, group[3], group[4], group[5])
		case group[0] == 38 || group[0] == 48:
			plain = append(plain, group...)
		}
		i = end
		// The colour of an underline is not shown, and its numbers are no looks.
		if group[0] == 58 && len(group) == 1 && i < len(p.parameters) {
			skip := 2
			if p.parameters[i] == 2 {
				skip = 4
			}
			plain, i = plain[:len(plain)-1], min(i+skip, len(p.parameters))
		}
	}
	return plain
}

// move carries out a movement of the cursor. It reports whether final is one.
func (t *Terminal) move(final rune) bool {
	g := t.now
	cur := &g.cursor
	x := min(cur.x, t.columns-1)
	top, bottom := 0, t.rows-1
	if cur.y >= g.top && cur.y <= g.bottom {
		top, bottom = g.top, g.bottom
	}
	switch n := t.count(); final {
	case 'A':
		cur.x, cur.y = x, max(cur.y-n, top)
	case 'B', 'e':
		cur.x, cur.y = x, min(cur.y+n, bottom)
	case 'C', 'a':
		cur.x = min(x+n, t.columns-1)
	case 'D':
		cur.x = max(x-n, 0)
	case 'E':
		cur.x, cur.y = 0, min(cur.y+n, bottom)
	case 'F':
		cur.x, cur.y = 0, max(cur.y-n, top)
	case 'G', '`':
		cur.x = min(n, t.columns) - 1
	case 'd':
		t.place(n, x+1)
	case 'H', 'f':
		t.place(n, max(t.number(1, 1), 1))
	case 'I':
		for range min(n, t.columns) {
			cur.x = t.nextTab(cur.x)
		}
	case 'Z':
		for range min(n, t.columns) {
			cur.x = t.previousTab(cur.x)
		}
	default:
		return false
	}
	return true
}

// place moves the cursor to a row and a column, counted from 1.
func (t *Terminal) place(row, column int) {
	g := t.now
	top, bottom := 0, t.rows-1
	if t.modes.origin {
		top, bottom = g.top, g.bottom
	}
	g.cursor.x, g.cursor.y = min(column, t.columns)-1, min(top+row-1, bottom)
}

// edit carries out an erasure, an insertion, a deletion or a scroll. It reports whether final is one.
func (t *Terminal) edit(final rune) bool {
	g := t.now
	cur := &g.cursor
	l := g.row(t, cur.y)
	x := min(cur.x, t.columns-1)
	inside := cur.y >= g.top && cur.y <= g.bottom
	switch n := t.count(); final {
	case 'J':
		t.eraseScreen(t.number(0, 0))
	case 'K':
		switch t.number(0, 0) {
		case 0:
			l.erase(t, x, t.columns, cur.look)
		case 1:
			l.erase(t, 0, x+1, cur.look)
		case 2:
			l.clear(t, cur.look)
		}
	case 'X':
		l.erase(t, x, min(x+n, t.columns), cur.look)
	case '@':
		t.insert(l, n)
	case 'P':
		t.remove(l, n)
	case 'L', 'M':
		if inside {
			if cur.x = 0; final == 'L' {
				n = -n
			}
			g.move(t, cur.y, n)
		}
	case 'S':
		g.scroll(t, g.top, g.bottom, n)
	case 'T':
		g.scroll(t, g.top, g.bottom, -n)
	case 'b':
		if t.last != 0 {
			for range min(n, t.columns*t.rows) {
				t.put(t.last)
			}
		}
	default:
		return false
	}
	return true
}

// move deletes n rows at y, or inserts -n. Deleted rows are not kept.
func (g *grid) move(t *Terminal, y, n int) {
	kept := g.kept
	g.kept = 0
	g.scroll(t, y, g.bottom, n)
	g.kept = kept
}

// eraseScreen erases from the cursor, to the cursor, or all of the screen. 3 forgets the lines above it.
func (t *Terminal) eraseScreen(how int) {
	g := t.now
	cur := g.cursor
	x := min(cur.x, t.columns-1)
	from, to := 0, t.rows
	switch how {
	case 0:
		g.row(t, cur.y).erase(t, x, t.columns, cur.look)
		from = cur.y + 1
	case 1:
		g.row(t, cur.y).erase(t, 0, x+1, cur.look)
		to = cur.y
	case 2:
	case 3:
		above := len(g.lines) - t.rows
		g.lines, g.base = g.lines[above:], g.base+above
		return
	default:
		return
	}
	for y := from; y < to; y++ {
		g.row(t, y).clear(t, cur.look)
	}
}

// region sets the rows that scroll.
func (t *Terminal) region() {
	top, bottom := max(t.number(0, 1), 1), min(max(t.number(1, t.rows), 1), t.rows)
	if top >= bottom {
		return
	}
	t.now.top, t.now.bottom = top-1, bottom-1
	t.place(1, 1)
}

// setPrivate switches a private mode.
func (t *Terminal) setPrivate(mode int, on bool) {
	switch mode {
	case 1:
		t.modes.cursorKeys = on
	case 6:
		t.modes.origin = on
		t.place(1, 1)
	case 7:
		t.modes.noWrap = !on
	case 25:
		t.modes.hidden = !on
	case 2004:
		t.modes.paste = on
	case 47, 1047:
		t.alternate(on)
	case 1048:
		if on {
			t.now.saved = t.now.cursor
		} else {
			t.restore()
		}
	case 1049:
		if on == (t.now == &t.other) {
			return
		}
		if on {
			t.main.saved = t.main.cursor
			t.alternate(true)
			return
		}
		t.alternate(false)
		t.restore()
	}
}

// alternate shows the alternate screen, which begins empty, or the main one.
func (t *Terminal) alternate(on bool) {
	if on == (t.now == &t.other) {
		return
	}
	from := t.now.cursor
	if t.now = &t.main; on {
		t.now = &t.other
		t.other = newGrid(t.rows)
	}
	t.now.cursor.x, t.now.cursor.y, t.now.cursor.look = from.x, from.y, from.look
	t.touchScreen()
}

// reportCursor answers where the cursor is.
func (t *Terminal) reportCursor(mark string) {
	cur := t.now.cursor
	y := cur.y
	if t.modes.origin {
		y -= t.now.top
	}
	t.reply("\x1b[" + mark + strconv.Itoa(y+1) + ";" + strconv.Itoa(min(cur.x, t.columns-1)+1) + "R")
}
