package markup

import "strings"

// StablePart returns the length of the part of a Markdown text that stays the same whatever follows: it ends after an empty
// line that is not in a code block, and before a line that does not continue a list.
func StablePart(text string) int {
	end, at, empty := 0, 0, false
	var block codeBlock
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if empty && block.fence == "" && strings.HasSuffix(line, "\n") && beginsBlock(line) {
			end = at
		}
		at += len(line)
		empty = trimmed == ""
		block.next(trimmed)
	}
	return end
}

// codeBlock is the code block that contains a line. fence is empty if the line is outside of code blocks.
type codeBlock struct {
	// begin is its first line, and fence the marks of that line.
	begin, fence string
}

// next moves past a line, which must come without its indent and its end.
func (c *codeBlock) next(line string) {
	switch mark := fenceOf(line); {
	case c.fence == "":
		c.begin, c.fence = line, mark
	case strings.HasPrefix(mark, c.fence) && strings.Trim(line, c.fence[:1]) == "":
		c.fence = ""
	}
}

// beginsBlock reports whether a line after an empty line begins a new block, and does not continue a list.
func beginsBlock(line string) bool {
	depth, _ := nesting(line)
	return depth == 0 && line[0] != ' ' && line[0] != '\t'
}

// fenceOf returns the marks with which a line begins or ends a code block, or "" if it does neither.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, mark)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

// OpenBlock returns the line that begins the code block in which a Markdown text ends, or "" if the text ends outside of code
// blocks.
func OpenBlock(text string) string {
	var block codeBlock
	for line := range strings.Lines(text) {
		block.next(strings.TrimSpace(line))
	}
	if block.fence == "" {
		return ""
	}
	return block.begin
}
