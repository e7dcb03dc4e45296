package terminal

import "unicode/utf8"

const (
	// maxParameters limits how many numbers a control sequence may have, and maxParameter their values.
	maxParameters, maxParameter = 32, 9999
	// keptString is how much of an operating system command is kept, in bytes. maxString is the length at which a string that
	// does not end is taken for text, so that a stray byte does not silence the terminal for good.
	keptString, maxString = 512, 1 << 20
)

// next interprets a character.
func (t *Terminal) next(c rune) {
	p := &t.parser
	switch {
	case c == 0x1b:
		t.endString()
		p.state = inEscape
	case c == 0x18 || c == 0x1a: // cancel
		p.state = inText
	case p.state == inText && c >= ' ':
		t.put(c)
	case p.state == inCommand || p.state == inString:
		t.string(c)
	case c < ' ':
		t.format(c) // even within a sequence
	case p.state == inEscape:
		t.escape(c)
	case p.state == inCharset:
		t.choose(c)
	case p.state == inControl:
		t.control(c)
	}
}

// string takes a character of a string.
func (t *Terminal) string(c rune) {
	p := &t.parser
	if c == 0x07 {
		t.endString()
		p.state = inText
		return
	}
	if p.length += utf8.RuneLen(c); p.length > maxString {
		p.state = inText
		return
	}
	if p.state == inCommand && len(p.text) < keptString {
		p.text = utf8.AppendRune(p.text, c)
	}
}

// begin begins a string.
func (t *Terminal) begin(s state) {
	t.parser.state, t.parser.text, t.parser.length = s, t.parser.text[:0], 0
}

// control takes a character of a control sequence.
func (t *Terminal) control(c rune) {
	p := &t.parser
	last := len(p.parameters) - 1
	switch {
	case c >= '0' && c <= '9':
		p.parameters[last] = min(max(p.parameters[last], 0)*10+int(c-'0'), maxParameter)
	case c == ';' || c == ':':
		if len(p.parameters) == maxParameters {
			p.ignored = true
			return
		}
		p.parameters, p.sub = append(p.parameters, -1), append(p.sub, c == ':')
	case c >= '<' && c <= '?':
		p.private = c
	case c >= ' ' && c <= '/':
		p.between = c
	case c >= '@' && c <= '~':
		p.state = inText
		if !p.ignored {
			t.apply(c)
		}
	default:
		p.state = inText
	}
}

// number returns the i-th number of the control sequence, or instead if it is missing.
func (t *Terminal) number(i, instead int) int {
	if i >= len(t.parser.parameters) || t.parser.parameters[i] < 0 {
		return instead
	}
	return t.parser.parameters[i]
}

// count returns the first number of the control sequence, which is at least 1.
func (t *Terminal) count() int { return max(t.number(0, 1), 1) }
