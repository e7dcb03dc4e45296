package entry

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
)

func TestRepeated(t *testing.T) {
	t.Parallel()
	chat := func(author, payload string) Draft {
		return Draft{ID: "a", Author: author, Type: "chat", Payload: []byte(payload)}
	}
	command := func(c Command) Draft { return NewDraft("a", "ada", c) }
	for name, c := range map[string]struct {
		first, again Draft
		repeats      bool
	}{
		"the same text":                  {chat("ada", `{"text":"hi"}`), chat("ada", `{"text":"hi"}`), true},
		"the same value in other bytes":  {chat("ada", `{"text":"hi","reply_to":"b"}`), chat("ada", `{ "reply_to": "b", "text": "h\u0069" }`), true},
		"the same by a token":            {chat("ada", `{"text":"hi"}`), chat("ada", `{"text":"hi","confined":true}`), true},
		"another text":                   {chat("ada", `{"text":"hi"}`), chat("ada", `{"text":"ho"}`), false},
		"another author":                 {chat("ada", `{"text":"hi"}`), chat("bob", `{"text":"hi"}`), false},
		"another kind":                   {command(Command{Command: "ls"}), chat("ada", `{"text":"!ls"}`), false},
		"a command on a sandbox by now":  {command(Command{Command: "ls"}), command(Command{Command: "ls", SandboxID: "s"}), true},
		"another command":                {command(Command{Command: "ls"}), command(Command{Command: "ls -l"}), false},
		"a command with another timeout": {command(Command{Command: "ls"}), command(Command{Command: "ls", TimeoutMS: 1}), false},
	} {
		written := Entry{Seq: 1, ID: c.first.ID, Author: c.first.Author, Type: c.first.Type, Payload: c.first.Payload}
		if err := Repeated(c.again, written); (err == nil) != c.repeats || err != nil && fault.CodeOf(err) != fault.Exists {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
