package markup

import (
	"strconv"
	"strings"
)

// Look is how the text of a terminal looks. The zero Look is plain.
type Look struct {
	// ink and ground are 0 or a code of SGR (30 to 37, 90 to 97; 40 to 47, 100 to 107), or
	// extendedColour and a number of the palette.
	ink, ground uint16
	flags       lookFlags
	// link is an index into the screen's links plus 1, or 0.
	link uint16
}

const extendedColour = 256

type lookFlags uint8

const (
	bold lookFlags = 1 << iota
	faint
	italic
	underlined
	blinking
	struck
	// inverse swaps ink and ground.
	inverse
)

// flagClasses are the classes of the flags, in their order.
var flagClasses = [...]string{"term-fg1", "term-fg2", "term-fg3", "term-fg4", "term-fg5", "term-fg9"}

// Change changes the look as the control sequence SGR with these parameters does. A missing parameter is negative.
func (l *Look) Change(parameters []int) {
	for i := 0; i < len(parameters); i++ {
		switch code := max(parameters[i], 0); code {
		case 0:
			// The link stays, because only OSC 8 ends one.
			*l = Look{link: l.link}
		case 1:
			l.flags = l.flags&^faint | bold
		case 2:
			l.flags = l.flags&^bold | faint
		case 3:
			l.flags |= italic
		case 4:
			l.flags |= underlined
		case 5, 6:
			l.flags |= blinking
		case 7:
			l.flags |= inverse
		case 9:
			l.flags |= struck
		case 21, 22:
			l.flags &^= bold | faint
		case 23:
			l.flags &^= italic
		case 24:
			l.flags &^= underlined
		case 25:
			l.flags &^= blinking
		case 27:
			l.flags &^= inverse
		case 29:
			l.flags &^= struck
		case 30, 31, 32, 33, 34, 35, 36, 37, 90, 91, 92, 93, 94, 95, 96, 97:
			l.ink = uint16(code)
		case 40, 41, 42, 43, 44, 45, 46, 47, 100, 101, 102, 103, 104, 105, 106, 107:
			l.ground = uint16(code)
		case 39:
			l.ink = 0
		case 49:
			l.ground = 0
		case 38, 48:
			n, used := palette(parameters[i+1:])
			i += used
			switch {
			case n < 0:
			case code == 38:
				l.ink = paletteColour(n, 0)
			default:
				l.ground = paletteColour(n, 10)
			}
		}
	}
}

// palette reads the colour with which parameters begin. It returns the colour's number in the palette of 256, or -1, and the number of
// parameters that the colour takes.
func palette(parameters []int) (n, used int) {
	at := func(i int) int {
		if i >= len(parameters) {
			return 0
		}
		return max(parameters[i], 0)
	}
	switch at(0) {
	case 5:
		if n := at(1); n < 256 {
			return n, 2
		}
		return -1, 2
	case 2: // red, green and blue
		return nearestColour(min(at(1), 255), min(at(2), 255), min(at(3), 255)), 4
	}
	return -1, 1
}

// paletteColour converts a number of the palette to a colour of a look. The first sixteen are SGR codes. The codes for the
// ground are higher by shift.
func paletteColour(n, shift int) uint16 {
	switch {
	case n < 8:
		return uint16(30 + n + shift)
	case n < 16:
		return uint16(90 + n - 8 + shift)
	}
	return uint16(extendedColour + n)
}

// inkOf converts the colour of a ground to that of an ink, and groundOf the colour of an ink to that of a ground.
func inkOf(ground uint16) uint16 {
	if ground > 0 && ground < extendedColour {
		return ground - 10
	}
	return ground
}

func groundOf(ink uint16) uint16 {
	if ink > 0 && ink < extendedColour {
		return ink + 10
	}
	return ink
}

// hasClasses reports whether a look is more than a link.
func (l Look) hasClasses() bool { return l.ink != 0 || l.ground != 0 || l.flags != 0 }

// appendSpan opens a span of this look.
func (l Look) appendSpan(b *strings.Builder) {
	b.WriteString(`<span class="`)
	l.appendClasses(b)
	b.WriteString(`">`)
}

// Classes returns the classes of the style sheet that show the look, separated by spaces.
func (l Look) Classes() string {
	var b strings.Builder
	l.appendClasses(&b)
	return b.String()
}

func (l Look) appendClasses(b *strings.Builder) {
	separator := ""
	class := func(name string, n uint16) {
		b.WriteString(separator)
		b.WriteString(name)
		if n != 0 {
			b.WriteString(strconv.Itoa(int(n)))
		}
		separator = " "
	}
	ink, ground := l.ink, l.ground
	if l.flags&inverse != 0 {
		// If only one of the two has a colour, the other keeps the theme's colour, which is legible with every colour.
		if ink, ground = inkOf(ground), groundOf(ink); ink == 0 && ground == 0 {
			class("term-inverse", 0)
		}
	}
	colour := func(name string, n, bright uint16) {
		switch {
		case n >= extendedColour:
			class(name+"x", n-extendedColour)
		case n >= bright:
			class(name+"i", n)
		case n > 0:
			class(name, n)
		}
	}
	colour("term-fg", ink, 90)
	colour("term-bg", ground, 100)
	for i, name := range flagClasses {
		if l.flags&(1<<i) != 0 {
			class(name, 0)
		}
	}
}

// Ground returns the look of a space that is erased with this look: only its background.
func (l Look) Ground() Look { return Look{ground: l.ground} }
