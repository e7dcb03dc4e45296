package entry

import "strings"

// TerminalText returns a program's output as a terminal would show it, in lines of text: without colours and other control
// sequences, with the last state of overwritten lines, and without the screens of full-screen programs. It takes time
// proportional to the output.
func TerminalText(output string) string {
	var s screenText
	for rest := output; rest != ""; {
		rest = s.next(rest)
	}
	s.newLine()
	return strings.TrimRight(s.text.String(), "\n")
}

// screenText is a screen of one line, and the lines that have left it.
type screenText struct {
	text   strings.Builder
	line   []rune
	at     int
	hidden bool // a full-screen program is using the screen
}

// next processes one character or one control sequence, and returns the rest.
func (s *screenText) next(rest string) string {
	switch c := rest[0]; {
	case c == '\x1b':
		return s.escape(rest[1:])
	case c == '\n':
		s.newLine()
	case c == '\r':
		s.at = 0
	case c == '\b':
		s.at = max(s.at-1, 0)
	case c < ' ' && c != '\t', c == 0x7f:
	default:
		for _, r := range rest {
			s.put(r)
			return rest[len(string(r)):]
		}
	}
	return rest[1:]
}

func (s *screenText) put(r rune) {
	switch {
	case s.hidden:
	case s.at < len(s.line):
		s.line[s.at] = r
		s.at++
	default:
		s.line = append(s.line, r)
		s.at++
	}
}

func (s *screenText) newLine() {
	if !s.hidden {
		s.text.WriteString(strings.TrimRight(string(s.line), " "))
		s.text.WriteByte('\n')
	}
	s.line, s.at = s.line[:0], 0
}

// escape processes a control sequence without its first character, and returns the rest.
func (s *screenText) escape(rest string) string {
	if rest == "" {
		return ""
	}
	switch rest[0] {
	case '[':
		end := strings.IndexFunc(rest[1:], func(r rune) bool { return r >= '@' && r <= '~' || r < ' ' })
		if end < 0 {
			return ""
		}
		s.control(rest[1:1+end], rest[1+end])
		return rest[2+end:]
	case ']', 'P', 'X', '^', '_': // a string that ends with BEL or ESC \
		end := strings.IndexAny(rest, "\a\x1b\n")
		switch {
		case end < 0:
			return ""
		case strings.HasPrefix(rest[end:], "\x1b\\"):
			return rest[end+2:]
		case rest[end] == '\a':
			return rest[end+1:]
		}
		return rest[end:]
	case '(', ')', '*', '+', '#', '%', ' ': // with one more character
		return rest[min(2, len(rest)):]
	case '\x1b', '\n', '\r':
		return rest
	}
	return rest[1:]
}

// control executes a control sequence as far as it matters for a line.
func (s *screenText) control(parameters string, final byte) {
	switch {
	case final == 'K' && (parameters == "" || parameters == "0"):
		s.line = s.line[:min(s.at, len(s.line))]
	case final == 'K' && parameters == "2":
		s.line, s.at = s.line[:0], 0
	case final == 'C':
		s.put(' ')
	case (final == 'h' || final == 'l') && (parameters == "?1049" || parameters == "?1047" || parameters == "?47"):
		s.hidden = final == 'h'
	}
}
