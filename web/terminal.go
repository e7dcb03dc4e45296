package web

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	terminal "github.com/buildkite/terminal-to-html/v3"
	"github.com/microcosm-cc/bluemonday"
)

const (
	// foldedLines is how much of a command's output a page shows before it is asked for more.
	foldedLines = 24
	// failedLines is the same for a command that failed: its output is what one came for.
	failedLines = 100
	// foldedBytes bounds what is interpreted to show the end of a large output: an escape code further
	// up cannot matter any more.
	foldedBytes = 64 << 10
	// screenLines is how far up a running command can still change what it printed.
	screenLines = 200
)

// screenText is terminal output as safe HTML.
type screenText struct {
	HTML string
	// Lines is how many lines there are in all, Hidden how many of them come before HTML.
	Lines, Hidden int
}

// screenEnd renders the last lines of an output.
func screenEnd(output string, lines int) screenText {
	total := countLines(output)
	if cut := len(output) - foldedBytes; cut > 0 {
		output = output[cut:]
		if i := strings.IndexByte(output, '\n'); i >= 0 {
			output = output[i+1:]
		}
	}
	s := newScreen(0)
	_, _ = s.Write([]byte(output)) // a screen takes everything
	return lastLines(s.AsHTML(), lines, total)
}

// screenAll renders an output whole.
func screenAll(output string) screenText {
	s := newScreen(0)
	_, _ = s.Write([]byte(output))
	return screenText{HTML: screenPolicy().Sanitize(s.AsHTML()), Lines: countLines(output)}
}

func lastLines(rendered string, keep, total int) screenText {
	lines := strings.Split(rendered, "\n")
	total = max(total, len(lines))
	if len(lines) > keep {
		lines = lines[len(lines)-keep:]
	}
	return screenText{
		HTML:   screenPolicy().Sanitize(strings.Join(lines, "\n")),
		Lines:  total,
		Hidden: max(total-len(lines), 0),
	}
}

func countLines(output string) int {
	n := strings.Count(output, "\n")
	if output != "" && !strings.HasSuffix(output, "\n") {
		n++
	}
	return n
}

// liveScreen follows the output of a running command in bounded memory, however much it prints.
type liveScreen struct {
	screen *terminal.Screen
	// next is the offset at which the output goes on.
	next int64
	// Missed is how many bytes never came: what was printed before we joined, or lost on the way.
	Missed int64
}

func newLiveScreen() *liveScreen { return &liveScreen{screen: newScreen(screenLines)} }

// Write takes a piece of output that starts at offset; what it has already is left out.
func (s *liveScreen) Write(offset int64, data []byte) {
	switch {
	case offset > s.next:
		s.Missed += offset - s.next
	case offset < s.next:
		data = data[min(s.next-offset, int64(len(data))):]
		offset = s.next
	}
	s.next = offset + int64(len(data))
	_, _ = s.screen.Write(data)
}

// Text is the end of what was printed.
func (s *liveScreen) Text() screenText {
	shown := s.screen.AsHTML()
	return lastLines(shown, foldedLines, s.screen.LinesScrolledOut+strings.Count(shown, "\n")+1)
}

// newScreen makes a terminal that remembers at most so many lines; 0 is no bound.
func newScreen(lines int) *terminal.Screen {
	const columns = 4000 // longer lines are wrapped: they scroll sideways in the page, within reason
	s, err := terminal.NewScreen(terminal.WithMaxSize(columns, lines), terminal.WithSize(160, min(100, max(lines, 100))))
	if err != nil {
		panic("web: " + err.Error()) // the sizes are constants
	}
	return s
}

// screenPolicy lets colours and web links through; a terminal can also ask for images, which a page must
// not load.
var screenPolicy = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(term-[a-z]+[0-9]+ ?)+$`)).OnElements("span")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
})

// terminalPalette is the style sheet of the 240 colours beyond the first sixteen: a cube of six levels for
// red, green and blue, and 24 greys, as every terminal has them.
func terminalPalette() string {
	var b strings.Builder
	rule := func(n, red, green, blue int) {
		fmt.Fprintf(&b, ".term-fgx%d{color:#%02x%02x%02x}.term-bgx%[1]d{background:#%02[2]x%02[3]x%02[4]x}", n, red, green, blue)
	}
	levels := [6]int{0, 95, 135, 175, 215, 255}
	for n := range 216 {
		rule(16+n, levels[n/36], levels[n/6%6], levels[n%6])
	}
	for n := range 24 {
		rule(232+n, 8+10*n, 8+10*n, 8+10*n)
	}
	return b.String()
}
