// Package terminal emulates the terminal of a command for a page: it interprets the command's output, as xterm does, and says
// which rows of the screen have changed.
//
// The output may be hostile. A [Terminal] accepts any bytes, in pieces that may end anywhere. Its size and [KeptLines] bound its
// memory, and the size of the screen bounds the cost of a sequence. A page gets texts and names of classes, never HTML.
//
// A byte goes from the state machine in parse.go to a function of control.go, escape.go or text.go, which changes a grid
// (grid.go, rows.go). frame.go returns the changes.
package terminal

import "unicode/utf8"

const (
	// KeptLines is how many lines are kept above the screen.
	KeptLines = 500
	// MaxRows and MaxColumns limit the size of a terminal.
	MaxRows, MaxColumns = 150, 300
	// maxTitle limits the title, in characters.
	maxTitle = 100
	// maxReplies limits the replies that wait to be sent, in bytes.
	maxReplies = 1024
)

// Terminal is the state of a terminal. It is not safe for concurrent use.
type Terminal struct {
	rows, columns int
	// main is the screen of a shell, and other the alternate screen of editors and pagers. now is one of the two.
	main, other grid
	now         *grid
	// version counts the calls that changed something. A line holds the version of its last change.
	version uint64

	modes modes
	title string
	// lineDrawing says which of the two character sets is that of line drawing. shifted is the index of the current set.
	lineDrawing [2]bool
	shifted     int
	tabs        map[int]bool // columns in which tab stops were set; nil for every eighth
	last        rune         // the last printed character, which may be repeated
	replies     []byte

	parser parser
}

// modes are what programs switch on and off.
type modes struct {
	insert, origin, noWrap, hidden bool
	// cursorKeys asks for the arrow keys' application sequences, and paste for marks around pasted text.
	cursorKeys, paste bool
}

// New returns a terminal. Its size is limited to [MaxRows] and [MaxColumns].
func New(rows, columns int) *Terminal {
	t := &Terminal{}
	t.rows, t.columns = Limit(rows, columns)
	t.reset()
	return t
}

// Limit returns the size that a terminal has if this one is asked for.
func Limit(rows, columns int) (int, int) {
	return min(max(rows, 1), MaxRows), min(max(columns, 2), MaxColumns)
}

// Size returns the size of the screen.
func (t *Terminal) Size() (rows, columns int) { return t.rows, t.columns }

// Write interprets the next piece of output. It never fails.
func (t *Terminal) Write(piece []byte) (int, error) {
	t.version++
	n := len(piece)
	p := &t.parser
	for len(p.partial) > 0 && len(piece) > 0 {
		p.partial, piece = append(p.partial, piece[0]), piece[1:]
		if utf8.FullRune(p.partial) {
			// The last byte may begin the next character, if this one is invalid.
			c, size := utf8.DecodeRune(p.partial)
			rest := append([]byte(nil), p.partial[size:]...)
			p.partial = p.partial[:0]
			t.next(c)
			piece = append(rest, piece...)
		}
	}
	for len(piece) > 0 {
		if !utf8.FullRune(piece) {
			p.partial = append(p.partial[:0], piece...)
			break
		}
		c, size := utf8.DecodeRune(piece)
		piece = piece[size:]
		t.next(c)
	}
	return n, nil
}

// Replies returns what the terminal answers to the program, as if it were typed, and forgets it. It consists of fixed
// sequences and numbers.
func (t *Terminal) Replies() []byte {
	r := t.replies
	t.replies = nil
	return r
}

// reply answers the program. A program that does not read its answers loses them.
func (t *Terminal) reply(text string) {
	if len(t.replies)+len(text) <= maxReplies {
		t.replies = append(t.replies, text...)
	}
}

// Resize changes the size, within the limits of [New].
func (t *Terminal) Resize(rows, columns int) {
	rows, columns = Limit(rows, columns)
	if rows == t.rows && columns == t.columns {
		return
	}
	t.version++
	t.main.resize(t, rows, columns)
	t.other.resize(t, rows, columns)
	t.rows, t.columns = rows, columns
	t.touchScreen()
}

// reset restores the state of a new terminal.
func (t *Terminal) reset() {
	t.version++
	first := t.main.base + len(t.main.lines)
	t.main, t.other = newGrid(t.rows), newGrid(t.rows)
	t.main.base = first // so that no line number is used twice
	t.now = &t.main
	t.main.kept = KeptLines
	t.modes, t.title, t.tabs, t.last = modes{}, "", nil, 0
	t.lineDrawing, t.shifted = [2]bool{}, 0
	t.touchScreen()
}

// touchScreen marks all rows of both screens as changed.
func (t *Terminal) touchScreen() {
	for _, g := range []*grid{&t.main, &t.other} {
		for y := range t.rows {
			g.row(t, y).changed = t.version
		}
	}
}
