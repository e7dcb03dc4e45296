package terminal

// parser is the state between two characters.
type parser struct {
	state state
	// partial is the beginning of an incomplete character.
	partial []byte
	// parameters are the numbers of a control sequence; missing ones are -1. sub[i] reports that a colon is before the i-th.
	parameters []int
	sub        []bool
	// private is the character after ESC [ that makes a sequence private, or 0, and between the character before its end.
	private, between rune
	ignored          bool
	// text is the beginning of a string, and length how many bytes of the string were read.
	text   []byte
	length int
	// charset is the character after ESC that chooses a set.
	charset rune
}

type state uint8

const (
	inText state = iota
	inEscape
	inCharset // after an escape that takes one more character
	inControl // after ESC [
	inCommand // after ESC ]
	inString  // after the other introducers of a string
)
