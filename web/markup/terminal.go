package markup

import (
	"strings"
)

const (
	// FoldedLines is the number of lines of a command's output that a page shows at first.
	FoldedLines = 24
	// FailedLines is the same for a failed command. It is larger, because readers want to see the cause.
	FailedLines = 100
	// foldedBytes is how much of the end of a large output is interpreted, in bytes. Skipping the rest is safe enough,
	// because escape sequences further up rarely matter.
	foldedBytes = 64 << 10
	// foldedStyled and wholeStyled are the lengths of HTML after which an output loses its colours and links: for the end of
	// an output, and for a whole output.
	foldedStyled, wholeStyled = 128 << 10, 4 << 20
	// wholeShown bounds the HTML of a whole output, in bytes.
	wholeShown = 8 << 20
)

// Output is terminal output as safe HTML.
type Output struct {
	HTML string
	// Lines is the number of all lines, and Hidden the number of lines before HTML.
	Lines, Hidden int
	// Cut reports that HTML ends before the output does.
	Cut bool
}

// OutputEnd renders the last lines of an output.
func OutputEnd(output string, lines int) Output {
	total := countLines(output)
	if cut := len(output) - foldedBytes; cut > 0 {
		output = output[cut:]
		// The rest of a cut line is left out, because it may begin inside an escape sequence.
		if i := strings.IndexByte(output, '\n'); i >= 0 {
			output = output[i+1:]
		}
	}
	s := newScreen()
	_, _ = s.Write([]byte(output)) // a screen accepts all bytes
	return s.end(lines, total)
}

// WholeOutput renders a whole output.
func WholeOutput(output string) Output {
	s, b := newScreen(), &strings.Builder{}
	text := Output{Lines: countLines(output)}
	show := func(rows []screenRow) {
		if text.Cut = text.Cut || b.Len() >= wholeShown; !text.Cut {
			s.appendLines(b, rows, wholeStyled)
		}
	}
	s.retired = show
	_, _ = s.Write([]byte(output))
	show(s.written())
	text.HTML = strings.TrimSuffix(b.String(), "\n")
	return text
}

// end renders the last lines of a screen. total is the number of all lines, if it is known.
func (s *screen) end(keep, total int) Output {
	rows := s.written()
	from, shown, all := len(rows), 0, s.scrolled
	for i := len(rows) - 1; i >= 0; i-- {
		if i > 0 && rows[i-1].wrapped {
			continue // the line begins further up
		}
		if all++; shown < keep {
			from, shown = i, shown+1
		}
	}
	var b strings.Builder
	s.appendLines(&b, rows[from:], foldedStyled)
	total = max(total, all)
	return Output{HTML: strings.TrimSuffix(b.String(), "\n"), Lines: total, Hidden: max(total-shown, 0)}
}

func countLines(output string) int {
	n := strings.Count(output, "\n")
	if output != "" && !strings.HasSuffix(output, "\n") {
		n++
	}
	return n
}

// LiveOutput follows the output of a running command in bounded memory, however much it prints.
type LiveOutput struct {
	screen *screen
	// next is the offset of the next byte of output.
	next int64
	// Missed is the number of bytes that never arrived: they were printed before this reader joined, or were lost.
	Missed int64
}

func NewLiveOutput() *LiveOutput { return &LiveOutput{screen: newScreen()} }

// Write adds a piece of output that starts at offset, and skips bytes that it already has.
func (s *LiveOutput) Write(offset int64, data []byte) {
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

// Text renders the end of the output.
func (s *LiveOutput) Text() Output { return s.screen.end(FoldedLines, 0) }
