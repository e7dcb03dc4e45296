package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestEveryHabitLeadsToAVerb(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	root.InitDefaultHelpCmd()
	visible := func(path string) bool {
		path, _, _ = strings.Cut(path, " --")
		cmd, rest, err := root.Find(strings.Fields(path))
		return err == nil && len(rest) == 0 && cmd != root && (cmd.IsAvailableCommand() || cmd.Name() == "help") && !cmd.Parent().Hidden
	}
	typed := map[string]bool{}
	for _, h := range habits {
		if !visible(h.verb) {
			t.Errorf("there is no arbe %s", h.verb)
		}
		for _, words := range strings.Split(h.typed, ", ") {
			if visible(words) {
				t.Errorf("arbe %s works, so it cannot stand for arbe %s", words, h.verb)
			}
			if typed[words] {
				t.Errorf("arbe %s stands for two verbs", words)
			}
			typed[words] = true
			before, _, nested := strings.Cut(words, " ")
			if nested && !visible(before) {
				t.Errorf("nobody gets to %q, because there is no arbe %s", words, before)
			}
		}
	}
	used := map[string]bool{}
	walk(root, func(cmd *cobra.Command) { used[cmd.Name()] = true })
	for _, s := range synonyms {
		if !used[s.verb] {
			t.Errorf("no group has the verb %s", s.verb)
		}
	}
}

func TestEveryFlagOfAHabitLeadsToAFlag(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		for typed, meant := range flagHabits {
			for _, name := range meant {
				used[name] = used[name] || cmd.Flag(name) != nil
				if typed == name {
					t.Errorf("--%s stands for itself", typed)
				}
			}
		}
	})
	for name, has := range used {
		if !has {
			t.Errorf("no verb has the flag --%s", name)
		}
	}
}
