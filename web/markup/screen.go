package markup

import (
	"html"
	"net/url"
	"strings"
	"unicode/utf8"
)

const (
	// screenColumns is the width at which a screen wraps. In HTML, wrapped rows become one line again.
	screenColumns = 160
	// windowRows is how many rows up the cursor can go.
	windowRows = 100
	// keptRows is how many rows a screen keeps. It is at least windowRows.
	keptRows = 200
	// maxParameters limits how many numbers a control sequence may have, and maxParameter their values. No sequence needs
	// more, because no screen is larger.
	maxParameters, maxParameter = 32, 9999
	// maxCommand limits the length of an operating system command, and with it the address of a link, in bytes.
	maxCommand = 2048
	// maxLinks limits the number of links of one screen.
	maxLinks = 1000
)

// screen interprets terminal output, which may be hostile. It accepts any bytes, in pieces that may end anywhere. Its time is
// proportional to the number of bytes, and its memory is bounded.
//
// It knows text, cursor movements, erasing, colours and links (OSC 8). It ignores all other sequences. It is not safe for
// concurrent use.
type screen struct {
	// rows are the kept rows, at least one and at most 2*keptRows. The cursor is in the last windowRows of them.
	rows []screenRow
	x, y int
	// savedX and savedY are the cursor as ESC 7 saved it; savedY counts from the top of the window.
	savedX, savedY int
	look           Look
	// links are the addresses that looks refer to, counted from 1.
	links []string
	// retired receives the rows that scroll out, oldest first, and must not keep them. If it is nil, the rows are dropped.
	retired func([]screenRow)
	// origin is the row of the first line of a program that cleared the screen, or -1 if no program did or the row scrolled out.
	origin int
	// scrolled counts the lines that scrolled out.
	scrolled int

	state parserState
	// character is the beginning of an incomplete character.
	character []byte
	// parameters are the numbers of a control sequence. ignored is set for a sequence that is not interpreted.
	parameters []int
	ignored    bool
	// command is the text of an operating system command. A command longer than maxCommand is ignored.
	command []byte
}

type parserState uint8

const (
	inText parserState = iota
	// inEscape is the state after ESC.
	inEscape
	// inCharset is the state after an escape that takes one more character.
	inCharset
	// inControl is the state after ESC [.
	inControl
	// inCommand is the state after ESC ], and inString after the other introducers of a string that ends with ST.
	inCommand
	inString
)

// screenRow is a row of the screen, continued by the next one if wrapped.
type screenRow struct {
	cells   []cell
	wrapped bool
}

type cell struct {
	char rune
	look Look
}

func newScreen() *screen { return &screen{rows: make([]screenRow, 1, 2*keptRows), origin: -1} }

// Write interprets the next piece of output. It never fails.
func (s *screen) Write(piece []byte) (int, error) {
	n := len(piece)
	for len(s.character) > 0 && len(piece) > 0 {
		s.character, piece = append(s.character, piece[0]), piece[1:]
		if utf8.FullRune(s.character) {
			// Consume only the character's own bytes, because the last byte may begin the next character if this one is
			// invalid.
			whole := s.character
			s.character = nil
			piece = append(whole[s.next(whole):len(whole):len(whole)], piece...)
		}
	}
	for len(piece) > 0 {
		if !utf8.FullRune(piece) {
			s.character = append([]byte(nil), piece...)
			break
		}
		piece = piece[s.next(piece):]
	}
	return n, nil
}

// next interprets the first character of b and returns its size.
func (s *screen) next(b []byte) int {
	c, size := utf8.DecodeRune(b)
	switch s.state {
	case inText:
		s.text(c)
	case inEscape:
		s.escape(c)
	case inCharset:
		s.state = inText
	case inControl:
		s.control(c)
	case inCommand, inString:
		s.string(c)
	}
	return size
}

func (s *screen) text(c rune) {
	switch {
	case c == '\n':
		s.newLine()
	case c == '\r':
		s.x = 0
	case c == '\b':
		s.x = max(s.x-1, 0)
	case c == 0x1b:
		s.state = inEscape
	case c == '\t', c >= ' ' && (c < 0x7f || c >= 0xa0):
		s.put(c)
	}
}

func (s *screen) escape(c rune) {
	s.state = inText
	switch c {
	case '[':
		s.state, s.parameters, s.ignored = inControl, append(s.parameters[:0], -1), false
	case ']':
		s.state, s.command = inCommand, s.command[:0]
	case 'P', 'X', '^', '_':
		s.state = inString
	case '(', ')', '*', '+', '-', '.', '/', '#', '%', ' ':
		s.state = inCharset
	case 'M':
		s.y = max(s.y-1, s.top())
	case '7':
		s.savedX, s.savedY = s.x, s.y-s.top()
	case '8':
		s.x, s.y = s.savedX, min(s.top()+s.savedY, len(s.rows)-1)
	case 0x1b:
		s.state = inEscape
	default:
		if c < ' ' || c > '~' { // not an escape sequence
			s.text(c)
		}
	}
}

func (s *screen) control(c rune) {
	last := len(s.parameters) - 1
	switch {
	case c >= '0' && c <= '9':
		s.parameters[last] = min(max(s.parameters[last], 0)*10+int(c-'0'), maxParameter)
	case c == ';' || c == ':':
		if len(s.parameters) == maxParameters {
			s.ignored = true
			break
		}
		s.parameters = append(s.parameters, -1)
	case c >= '<' && c <= '?', c >= ' ' && c <= '/': // private, or with an intermediate character
		s.ignored = true
	case c >= '@' && c <= '~':
		s.state = inText
		if !s.ignored {
			s.apply(c)
		}
	default:
		s.state = inText
		s.text(c)
	}
}

// parameter returns the i-th number of a control sequence, or instead if it is missing.
func (s *screen) parameter(i, instead int) int {
	if i >= len(s.parameters) || s.parameters[i] < 0 {
		return instead
	}
	return s.parameters[i]
}

func (s *screen) apply(final rune) {
	switch final {
	case 'A':
		s.up()
	case 'B':
		s.down()
	case 'C':
		s.x = min(s.x+max(s.parameter(0, 1), 1), screenColumns-1)
	case 'D':
		s.x = max(s.x-max(s.parameter(0, 1), 1), 0)
	case 'E':
		s.x = 0
		s.down()
	case 'F':
		s.x = 0
		s.up()
	case 'G', '`':
		s.column(s.parameter(0, 1))
	case 'H', 'f':
		s.place(s.parameter(0, 1))
		s.column(s.parameter(1, 1))
	case 'J':
		s.eraseScreen(s.parameter(0, 0))
	case 'K':
		s.eraseRow(s.parameter(0, 0))
	case 'm':
		s.look.Change(s.parameters)
	}
}

// place moves the cursor to a row of the terminal, counted from 1. The first row is known only after a program has cleared
// the screen. Until then place starts a new row, so that it does not overwrite earlier output.
func (s *screen) place(row int) {
	if s.origin < s.top() {
		if len(s.rows[s.y].cells) > 0 {
			s.forward()
		}
		return
	}
	s.y = min(s.origin+max(row, 1)-1, s.top()+windowRows-1)
	for len(s.rows) <= s.y {
		s.rows = append(s.rows, screenRow{})
	}
}

// top returns the first row of the window.
func (s *screen) top() int { return max(len(s.rows)-windowRows, 0) }

func (s *screen) column(n int) { s.x = min(max(n, 1), screenColumns) - 1 }

func (s *screen) up() { s.y = max(s.y-max(s.parameter(0, 1), 1), s.top()) }

func (s *screen) down() {
	y := min(s.y+max(s.parameter(0, 1), 1), s.top()+windowRows-1)
	for len(s.rows) <= y {
		s.rows = append(s.rows, screenRow{})
	}
	s.y = y
}

// newLine ends the line and begins the next row.
func (s *screen) newLine() {
	s.rows[s.y].wrapped = false
	s.forward()
	s.x = 0
}

// forward goes one row down, and scrolls at the end of the screen.
func (s *screen) forward() {
	s.y++
	if s.y < len(s.rows) {
		return
	}
	if len(s.rows) == 2*keptRows {
		old := s.rows[:keptRows]
		if s.retired != nil {
			s.retired(old)
		}
		for _, row := range old {
			if !row.wrapped {
				s.scrolled++
			}
		}
		// Swap the rows, so that the memory of the old ones is reused.
		kept := append([]screenRow(nil), s.rows[keptRows:]...)
		copy(s.rows[keptRows:], old)
		copy(s.rows, kept)
		s.rows, s.y, s.origin = s.rows[:keptRows], s.y-keptRows, max(s.origin-keptRows, -1)
	}
	if n := len(s.rows); n < cap(s.rows) {
		s.rows = s.rows[:n+1]
		s.rows[n] = screenRow{cells: s.rows[n].cells[:0]}
	}
}

func (s *screen) put(c rune) {
	if s.x >= screenColumns {
		s.rows[s.y].wrapped = true
		s.forward()
		s.x = 0
	}
	row := &s.rows[s.y]
	for len(row.cells) <= s.x {
		row.cells = append(row.cells, cell{char: ' '})
	}
	row.cells[s.x] = cell{c, s.look}
	s.x++
}

func (s *screen) eraseRow(how int) {
	row := &s.rows[s.y]
	switch how {
	case 0:
		row.cells = row.cells[:min(s.x, len(row.cells))]
	case 1:
		for x := range row.cells[:min(s.x+1, len(row.cells))] {
			row.cells[x] = cell{char: ' '}
		}
	case 2:
		row.cells = row.cells[:0]
	}
}

func (s *screen) eraseScreen(how int) {
	from, to := 0, 0
	switch how {
	case 0:
		s.eraseRow(0)
		from, to = s.y+1, len(s.rows)
	case 1:
		s.eraseRow(1)
		from, to = s.top(), s.y
	case 2:
		s.clearScreen()
	}
	for y := from; y < to; y++ {
		s.rows[y] = screenRow{cells: s.rows[y].cells[:0]}
	}
}

// clearScreen clears the terminal. The next row to be written is its first.
func (s *screen) clearScreen() {
	from := s.origin
	if from < s.top() {
		from = s.top()
	}
	s.rows = s.rows[:from+1]
	s.rows[from] = screenRow{cells: s.rows[from].cells[:0]}
	s.y, s.origin = from, from
}

// string handles a character of a string, which is an operating system command or ignored. An unterminated string ends with
// its line, so that it does not hide the rest of the output.
func (s *screen) string(c rune) {
	switch c {
	case 0x07:
		s.endString()
		s.state = inText
	case 0x1b: // the beginning of ST, which is ESC \, or of the next sequence
		s.endString()
		s.state = inEscape
	case '\n', '\r', 0x18, 0x1a:
		s.state = inText
		s.text(c)
	default:
		if s.state == inCommand && len(s.command) <= maxCommand {
			s.command = utf8.AppendRune(s.command, c)
		}
	}
}

// linkCommand begins the only operating system command that a screen interprets: 8;parameters;address.
const linkCommand = "8;"

func (s *screen) endString() {
	if s.state != inCommand {
		return
	}
	rest, isLink := strings.CutPrefix(string(s.command), linkCommand)
	if !isLink {
		return
	}
	s.look.link = 0 // first, because the previous link ends even if this one is invalid
	if len(s.command) > maxCommand {
		return
	}
	_, address, _ := strings.Cut(rest, ";")
	if address = webAddress(address); address == "" {
		return
	}
	if n := len(s.links); n == 0 || s.links[n-1] != address {
		if n == maxLinks {
			return
		}
		s.links = append(s.links, address)
	}
	s.look.link = uint16(len(s.links))
}

// webAddress returns an absolute http or https address in normal form. For any other address it returns "", because an
// address such as javascript:… must not become a link.
func webAddress(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return u.String()
}

// written returns the rows without the empty one after the end of the last line.
func (s *screen) written() []screenRow {
	if n := len(s.rows); len(s.rows[n-1].cells) == 0 {
		return s.rows[:n-1]
	}
	return s.rows
}

// appendLines appends rows as HTML, with a newline after each line. Once b is longer than styled bytes, it leaves out
// colours and links, because a change of colour at every character would multiply the HTML.
func (s *screen) appendLines(b *strings.Builder, rows []screenRow, styled int) {
	var current Look
	become := func(next Look) {
		if next == current {
			return
		}
		if current.hasClasses() {
			b.WriteString("</span>")
		}
		if next.link != current.link {
			if current.link != 0 {
				b.WriteString("</a>")
			}
			if next.link != 0 {
				b.WriteString(`<a href="`)
				b.WriteString(html.EscapeString(s.links[next.link-1]))
				b.WriteString(`" rel="nofollow noopener" target="_blank">`)
			}
		}
		if next.hasClasses() {
			next.appendSpan(b)
		}
		current = next
	}
	for _, row := range rows {
		cells := row.cells
		for n := len(cells); !row.wrapped && n > 0 && cells[n-1] == (cell{char: ' '}); n-- {
			cells = cells[:n-1]
		}
		for _, c := range cells {
			if b.Len() < styled {
				become(c.look)
			} else {
				become(Look{})
			}
			switch c.char {
			case '&':
				b.WriteString("&amp;")
			case '<':
				b.WriteString("&lt;")
			case '>':
				b.WriteString("&gt;")
			default:
				b.WriteRune(c.char)
			}
		}
		if !row.wrapped {
			become(Look{})
			b.WriteByte('\n')
		}
	}
	become(Look{})
}
