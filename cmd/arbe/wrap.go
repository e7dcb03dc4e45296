package main

import (
	"io"
	"strings"
)

// leastWrapped is the smallest useful width of text beside a name. Below it, the text begins on its own line.
const leastWrapped = 20

// wrapped breaks the lines of a text at spaces, so that none is wider than most columns unless a word is. What follows a break is
// indented like the text of its line or, if two spaces separate it into columns, like its last column. If the last column would
// be too narrow, it gets lines of its own.
func wrapped(text string, most int) string {
	var b strings.Builder
	for line := range strings.Lines(joined(text, most)) {
		line, ended := strings.CutSuffix(line, "\n")
		b.WriteString(wrappedLine(line, most))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// joined joins the lines of each paragraph that has a line of more than most columns, because breaking each of its lines would make
// every second one short. A paragraph has no indentation and no columns.
func joined(text string, most int) string {
	plain := func(line string) bool {
		return strings.TrimSpace(line) != "" && line[0] != ' ' && !strings.Contains(line, "  ")
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, paragraph := range paragraphs {
		lines := strings.Split(strings.TrimRight(paragraph, "\n"), "\n")
		all, wide := true, false
		for _, line := range lines {
			all, wide = all && plain(line), wide || cellsOf(line) > most
		}
		if all && wide {
			paragraphs[i] = strings.Join(lines, " ") + paragraph[len(strings.TrimRight(paragraph, "\n")):]
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func wrappedLine(line string, most int) string {
	if cellsOf(line) <= most {
		return line
	}
	words := strings.TrimLeft(line, " ")
	indent := len(line) - len(words)
	if most-indent < leastWrapped {
		indent = min(indent, 2)
	}
	below := indent
	for at := len(words); ; {
		if at = strings.LastIndex(words[:at], "  "); at < 0 {
			break
		}
		column := indent + cellsOf(words[:at+2])
		if column > most {
			continue
		}
		if below = column; most-column < leastWrapped { // the text begins on its own line
			below = indent + 2
			return line[:len(line)-len(words)] + strings.TrimRight(words[:at], " ") + "\n" + wrappedLine(strings.Repeat(" ", below)+words[at+2:], most)
		}
		break
	}
	return wrappedWords(words, indent, below, most)
}

// wrappedWords breaks words at spaces. The first line has one indentation, and the others another one.
func wrappedWords(words string, indent, below, most int) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", indent))
	used, begun := indent, false
	for word := range strings.SplitSeq(words, " ") {
		need := cellsOf(word)
		if begun {
			need++
		}
		switch {
		case begun && used+need > most && word != "":
			b.WriteString("\n" + strings.Repeat(" ", below) + word)
			used = below + need - 1
		case begun:
			b.WriteString(" " + word)
			used += need
		default:
			b.WriteString(word)
			used += need
		}
		begun = true
	}
	return b.String()
}

// printText prints text for people. On a terminal it is wrapped.
func (a *app) printText(text string) error {
	if isTerminal(a.out) {
		text = wrapped(text, columnsOf(a.out))
	}
	_, err := io.WriteString(a.out, text)
	return err
}
