package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// ComposerCommand is a command that people write as a slash and a word at the beginning of a text.
type ComposerCommand struct {
	// Name is the word: "run".
	Name string
	// Usage is how it is written: "/run COMMAND".
	Usage string
	// Help describes it in one line.
	Help string
}

// ComposerCommands lists all composer commands. [ParseCommand] parses /run and its short form, [ParseDelegation] parses
// /delegate, and [ThinkDirective] parses /think.
var ComposerCommands = []ComposerCommand{
	{Name: "run", Usage: "/run COMMAND", Help: "Run a command in the thread's sandbox. !COMMAND does the same."},
	{Name: "delegate", Usage: "/delegate @AGENT TASK", Help: "Give a task to a coding agent, which works on it in a thread and a sandbox of its own. Without @AGENT it is @pi."},
	{Name: "think", Usage: "/think LEVEL TEXT", Help: "Ask, and let the bot that answers think " + EffortWords + "."},
}

// UnknownCommand reports whether a text begins with a slash and a word other than those of [ComposerCommands], and returns
// the word. Only a separate word of lowercase letters counts, because texts may well begin with "/etc/hosts" or "/2". A space
// before the slash also makes it a text.
func UnknownCommand(text string) (word string, is bool) {
	rest, slash := strings.CutPrefix(text, "/")
	if !slash {
		return "", false
	}
	word = rest
	if end := strings.IndexAny(rest, " \t\r\n"); end >= 0 {
		word = rest[:end]
	}
	if word == "" || len(word) > 40 || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return "", false
	}
	for _, c := range ComposerCommands {
		if c.Name == word {
			return "", false
		}
	}
	return word, true
}

// CheckComposed returns a [fault.Invalid] for a text that looks like a command but is not one: an unknown command, for which
// the error lists the known ones; a command with nothing to run; or a malformed /think. Otherwise a mistyped command would be
// posted as a chat.
func CheckComposed(text string) error {
	if Unescaped(text) != text {
		return nil
	}
	if word, unknown := UnknownCommand(text); unknown {
		var usages []string
		for _, c := range ComposerCommands {
			usages = append(usages, c.Usage)
		}
		return fault.Newf(fault.Invalid, "use "+strings.Join(usages, ", ")+" or !COMMAND; to send the text as it is, write //"+word+" or begin with a space",
			"there is no command /%s", word)
	}
	if line, command := ParseCommand(text); command && line == "" {
		return fault.New(fault.Invalid, "there is nothing to run", "write a command after it, such as !ls -l")
	}
	if _, task, delegation := ParseDelegation(text); delegation && task == "" {
		return fault.New(fault.Invalid, "there is no task", "write it after the agent, such as /delegate @pi fix the failing test")
	}
	_, _, _, err := ThinkDirective(text)
	return err
}

// ParseDelegation returns the task that a text delegates with /delegate, and the handle of the agent, without its @; empty if
// the text names none.
func ParseDelegation(text string) (agent, task string, is bool) {
	rest, is := strings.CutPrefix(text, "/delegate")
	if !is || rest != "" && !strings.ContainsAny(rest[:1], " \t\r\n") {
		return "", "", false
	}
	task = strings.TrimSpace(rest)
	if strings.HasPrefix(task, "@") {
		end := strings.IndexAny(task, " \t\r\n")
		if end < 0 {
			end = len(task)
		}
		agent, task = task[1:end], strings.TrimSpace(task[end:])
	}
	return agent, task, true
}

// Unescaped removes the escape from a text that begins with two slashes and so is not a command: it returns "/shrug" for
// "//shrug".
func Unescaped(text string) string {
	rest, slash := strings.CutPrefix(text, "/")
	if _, unknown := UnknownCommand(rest); slash && unknown {
		return rest
	}
	if _, command := ParseCommand(rest); slash && command && strings.HasPrefix(rest, "/") {
		return rest
	}
	if _, _, delegation := ParseDelegation(rest); slash && delegation {
		return rest
	}
	if _, _, directive, _ := ThinkDirective(rest); slash && directive && strings.HasPrefix(rest, "/") {
		return rest
	}
	return text
}
