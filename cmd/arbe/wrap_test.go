package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTextIsWrappedAtSpaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most       int
		text, want string
	}{
		{30, "short\n\n  stays  as it is\n", "short\n\n  stays  as it is\n"},
		{30, "a paragraph of more than one line\nis filled again\n\nand this one stays\nas it is\n", "a paragraph of more than one\nline is filled again\n\nand this one stays\nas it is\n"},
		{40, "  verb      does something that takes many words\n", "  verb      does something that takes\n            many words\n"},
		{40, "  verb that is very long  does something that takes words\n", "  verb that is very long\n    does something that takes words\n"},
		{30, "                  → do this and that now\n", "  → do this and that now\n"},
		{30, "                  → do this and that now, and then the rest\n", "  → do this and that now, and\n  then the rest\n"},
		{20, "https://example.com/a/long/address is kept\n", "https://example.com/a/long/address\nis kept\n"},
		{20, "部署部署部署部署 部署部署", "部署部署部署部署\n部署部署"},
	} {
		if got := wrapped(c.text, c.most); got != c.want {
			t.Errorf("%q in %d columns is\n%s\nwant\n%s", c.text, c.most, got, c.want)
		}
	}
}

// The terminal has 40 columns.
func TestHelpFitsANarrowTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"thread", "list", "--help"}, {"help", "exit-codes"}} {
		s := startTypist(t, exec.Command("sh", append([]string{"-c", `stty cols 40 && arbe "$@" --no-pager && echo all of it`, "sh"}, args...)...))
		s.shows("all of it")
		s.exits(0)
		for line := range strings.SplitSeq(s.text(), "\r\n") {
			if cellsOf(line) > 40 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("arbe %q: a line has %d columns: %q", args, cellsOf(line), line)
			}
		}
	}
}
