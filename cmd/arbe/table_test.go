package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// aTable has ids of both kinds, a name that is the row's id, wide characters and a long text.
func aTable() (header []string, rows []row) {
	return []string{"ENTRY", "THREAD", "AUTHOR", "WRITTEN", "TEXT"}, []row{
		{id: "th4w7q2m9xaa", columns: []string{"th4w7q2m9xaa#12", "deploy of the week", "Ann", "3 min ago", strings.Repeat("words and more ", 20)}},
		{id: "th4w7q2m9xab", columns: []string{"th4w7q2m9xab#7", strings.Repeat("部署", 12), "👩\u200d🚀 and 👍🏽", "just now", "e\u0301" + strings.Repeat("会議の記録", 30)}},
		{id: "th4w7q2m9xac", columns: []string{"th4w7q2m9xac#1", "short", "©\ufe0f", "just now", ""}},
	}
}

func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{40, 41, 60, 80, 200} {
		header, rows := aTable()
		table := tableFor(header, rows, columns)
		for line := range strings.Lines(table) {
			if cells := cellsOf(strings.TrimSuffix(line, "\n")); cells > columns {
				t.Errorf("on %d columns a line has %d: %q", columns, cells, line)
			}
		}
		for _, r := range rows {
			if id := r.columns[0]; !strings.Contains(table, id) {
				t.Errorf("on %d columns the id %s is cut:\n%s", columns, id, table)
			}
		}
		if !strings.Contains(table, "…\n") {
			t.Errorf("on %d columns nothing shows that the text is cut:\n%s", columns, table)
		}
		if wide := columns >= 60; wide != (strings.Count(table, "\n") == 4) {
			t.Errorf("on %d columns it has %d lines:\n%s", columns, strings.Count(table, "\n"), table)
		}
	}
}

func TestATableCutsNothingThatFits(t *testing.T) {
	t.Parallel()
	header := []string{"ID", "NAME", "KIND"}
	rows := []row{{id: "0b0e1c1e-0000-4000-8000-000000000001", columns: []string{"0b0e1c1e-0000-4000-8000-000000000001", "会議", "human"}}}
	const whole = "ID                                    NAME  KIND\n0b0e1c1e-0000-4000-8000-000000000001  会議  human\n"
	for _, columns := range []int{49, 80, 1 << 30} {
		if got := tableFor(header, rows, columns); got != whole {
			t.Errorf("on %d columns it is\n%s", columns, got)
		}
	}
	const folded = "ID\n  NAME  KIND\n0b0e1c1e-0000-4000-8000-000000000001\n  会議  human\n"
	if got := tableFor(header, rows, 40); got != folded {
		t.Errorf("where the id leaves no room it is\n%s", got)
	}
}

func TestATextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"words", 5, "words"}, {"words", 4, "wor…"}, {"a word", 3, "a…"}, {"words", 1, "…"},
		{"会議の記録", 10, "会議の記録"}, {"会議の記録", 9, "会議の記…"}, {"会議の記録", 8, "会議の…"}, {"会議", 2, "…"},
		{"cafe\u0301s", 5, "cafe\u0301s"}, {"cafe\u0301 noir", 5, "cafe\u0301…"}, {"cafe\u0301 noir", 4, "caf…"},
		{"👩\u200d🚀 up", 3, "…"}, {"👍🏽 up", 4, "…"}, {"©\ufe0fab", 3, "©\ufe0f…"},
	} {
		got := cutTo(c.text, c.most)
		if got != c.want || cellsOf(got) > c.most {
			t.Errorf("%q on %d columns is %q of %d, want %q", c.text, c.most, got, cellsOf(got), c.want)
		}
	}
}

// The terminal has 90 columns.
func TestOnlyATerminalCutsTables(t *testing.T) {
	t.Parallel()
	host, config := "https://"+strings.Repeat("a-long-name.", 12)+"example.com", t.TempDir()
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"profiles":{"far":{"host":"`+host+`","token":"arbe_1"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	list := pagedArbe(t, "cat", "profile", "list")
	list.Env = append(list.Env, "ARBE_CONFIG_DIR="+config)
	piped := pagedArbe(t, "cat", "profile", "list")
	piped.Env = slices.Clone(list.Env)
	out, err := piped.Output()
	if err != nil || !strings.Contains(string(out), host) {
		t.Errorf("into a pipe it prints %q (%v)", out, err)
	}
	s := startTypist(t, list)
	s.shows("far")
	s.shows("…")
	s.exits(0)
	for line := range strings.Lines(s.text()) {
		if line = strings.TrimRight(line, "\r\n"); cellsOf(line) > 90 {
			t.Errorf("a line of the terminal has %d columns: %q", cellsOf(line), line)
		}
	}
}
