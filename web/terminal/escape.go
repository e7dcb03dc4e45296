package terminal

import (
	"strings"
	"unicode"
)

// escape handles the character after ESC.
func (t *Terminal) escape(c rune) {
	p := &t.parser
	p.state = inText
	switch c {
	case '[':
		p.state, p.parameters, p.sub = inControl, append(p.parameters[:0], -1), append(p.sub[:0], false)
		p.private, p.between, p.ignored = 0, 0, false
	case ']':
		t.begin(inCommand)
	case 'P', 'X', '^', '_':
		t.begin(inString)
	case '(', ')', '*', '+', '-', '.', '/', '#', '%', ' ':
		p.state, p.charset = inCharset, c
	case 'D':
		t.down()
	case 'E':
		t.now.cursor.x = 0
		t.down()
	case 'M':
		t.up()
	case 'H':
		t.setTab(min(t.now.cursor.x, t.columns-1), true)
	case '7':
		t.now.saved = t.now.cursor
	case '8':
		t.restore()
	case 'c':
		t.reset()
	}
}

// choose handles the last character of an escape sequence of two.
func (t *Terminal) choose(c rune) {
	p := &t.parser
	p.state = inText
	switch p.charset {
	case '(':
		t.lineDrawing[0] = c == '0'
	case ')':
		t.lineDrawing[1] = c == '0'
	case '#':
		if c == '8' { // the pattern to adjust a screen
			for y := range t.rows {
				l := t.now.row(t, y)
				l.clear(t, t.now.cursor.look)
				l.extend(t.columns)
				for x := range l.cells {
					l.cells[x].char = 'E'
				}
			}
		}
	}
}

func (t *Terminal) restore() {
	t.now.cursor = t.now.saved
	t.now.cursor.x, t.now.cursor.y = min(t.now.cursor.x, t.columns), min(t.now.cursor.y, t.rows-1)
}

// endString ends the string that is being read. Only the title is interpreted: an operating system command that begins with 0
// or 2.
func (t *Terminal) endString() {
	p := &t.parser
	if p.state != inCommand {
		return
	}
	number, text, _ := strings.Cut(string(p.text), ";")
	if number != "0" && number != "2" {
		return
	}
	title := []rune(strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) { // marks of direction, too
			return -1
		}
		return c
	}, text)))
	t.title = string(title[:min(len(title), maxTitle)])
}
