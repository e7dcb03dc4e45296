package terminal

import (
	"strings"

	"github.com/arbe-dev/arbe/web/markup"
)

// Seen is what a page shows: the versions of the two screens when they were last sent. The zero Seen is an empty page.
type Seen struct{ Main, Other uint64 }

// Frame is the change of a page that shows a terminal, as JSON.
type Frame struct {
	// Rows are the changed lines: each is a number, and then texts and the classes of each.
	Rows [][]any `json:"r,omitempty"`
	// Other reports that the lines are of the alternate screen.
	Other bool `json:"o,omitempty"`
	// First is the number of the first line that is kept, Top of the screen's first row, and Height and Width are its size.
	First  int `json:"f"`
	Top    int `json:"t"`
	Height int `json:"h"`
	Width  int `json:"w"`
	// X and Y are the column and the line of the cursor, unless it is hidden.
	X      int  `json:"x"`
	Y      int  `json:"y"`
	Hidden bool `json:"v,omitempty"`
	// CursorKeys and Paste are what the program asks of the keyboard.
	CursorKeys bool   `json:"k,omitempty"`
	Paste      bool   `json:"p,omitempty"`
	Title      string `json:"n,omitempty"`
}

// wideClass is the class of a character that takes two columns.
const wideClass = "tty-wide"

// Frame returns what has changed since a page was sent a frame, and records that the page has it.
func (t *Terminal) Frame(seen *Seen) Frame {
	g, since := t.now, &seen.Main
	if g == &t.other {
		since = &seen.Other
	}
	cur := g.cursor
	f := Frame{
		Other: g == &t.other, Top: g.first(t), Height: t.rows, Width: t.columns,
		X: min(cur.x, t.columns-1), Y: g.first(t) + cur.y, Hidden: t.modes.hidden,
		CursorKeys: t.modes.cursorKeys, Paste: t.modes.paste, Title: t.title,
	}
	from := max(len(g.lines)-t.rows-g.kept, 0)
	f.First = g.base + from
	for i, l := range g.lines[from:] {
		if l.changed > *since {
			f.Rows = append(f.Rows, l.runs(f.First+i, t.columns))
		}
	}
	*since = t.version
	return f
}

// Text returns the screen as text, without the spaces at the ends of rows.
func (t *Terminal) Text() string {
	var b strings.Builder
	for y := range t.rows {
		var row strings.Builder
		for i, part := range t.now.row(t, y).runs(0, t.columns) {
			if i%2 == 1 {
				row.WriteString(part.(string))
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

// runs returns the line's number, and its texts with their classes.
func (l *line) runs(number, columns int) []any {
	made := []any{number}
	var text strings.Builder
	var look markup.Look
	wide := false
	flush := func() {
		if text.Len() == 0 {
			return
		}
		classes := look.Classes()
		if wide {
			classes = strings.TrimPrefix(classes+" "+wideClass, " ")
		}
		made = append(made, text.String(), classes)
		text.Reset()
	}
	cells := l.cells[:min(len(l.cells), columns)]
	for n := len(cells); n > 0 && l.rest == (markup.Look{}) && cells[n-1] == (cell{char: ' '}); n-- {
		cells = cells[:n-1]
	}
	for i, c := range cells {
		if c.char == behind {
			continue
		}
		two := i+1 < len(cells) && cells[i+1].char == behind
		if two || wide || c.look != look {
			flush()
			look, wide = c.look, two
		}
		text.WriteRune(c.char)
		if c.mark != 0 {
			text.WriteRune(c.mark)
		}
	}
	flush()
	if rest := columns - len(cells); rest > 0 && l.rest != (markup.Look{}) {
		look, wide = l.rest, false
		text.WriteString(strings.Repeat(" ", rest))
		flush()
	}
	return made
}
