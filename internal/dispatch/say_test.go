//go:build linux

package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/command/commandtest"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/jobs"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// runner returns a speaker who may run commands, and talker one who may not.
func (b *bench) runner() dispatch.Speaker {
	return dispatch.Speaker{Scope: b.scope, MayRun: func(context.Context) error { return nil }}
}

func (b *bench) talker() dispatch.Speaker {
	return dispatch.Speaker{Scope: b.scope, MayRun: func(context.Context) error { return fault.New(fault.Forbidden, "no", "ask") }}
}

func (b *bench) says(by dispatch.Speaker, thread string, w dispatch.Message) entry.Entry {
	b.t.Helper()
	e, err := b.dispatcher.Say(b.t.Context(), by, thread, w)
	if err != nil {
		b.t.Fatal(detail(err))
	}
	return e
}

func TestSay(t *testing.T) {
	t.Parallel()
	b, gated := onGated(t, 1, dispatch.Limits{})
	th := b.thread(sandbox.Recipe{})
	isChat := func(t *testing.T, e entry.Entry, text string) {
		t.Helper()
		if c, ok := entry.As[entry.Chat](e); !ok || c.Text != text || e.Author != b.scope.Agent {
			t.Errorf("it is %s %s by %q", e.Type, e.Payload, e.Author)
		}
	}
	t.Run("is a chat, character by character", func(t *testing.T) {
		e := b.says(b.runner(), th, dispatch.Message{ID: "one", Text: "hello <b> & @bob!", ReplyTo: "x"})
		isChat(t, e, "hello <b> & @bob!")
		if string(e.Payload) != `{"text":"hello <b> & @bob!","reply_to":"x"}` || e.ID != "one" {
			t.Errorf("it is %s, %s", e.ID, e.Payload)
		}
	})
	t.Run("is a command, which runs", func(t *testing.T) {
		for text, line := range map[string]string{"/run make test": "make test", "  !ls -l": "ls -l"} {
			e := b.says(b.runner(), th, dispatch.Message{Text: text})
			if c, ok := entry.As[entry.Command](e); !ok || c.Command != line || e.Author != b.scope.Agent {
				t.Fatalf("it is %s %s", e.Type, e.Payload)
			}
			gated.HasBegun(t, line)
			gated.End(line)
			b.result(th, e.ID)
		}
		e := b.says(b.runner(), th, dispatch.Message{Text: "!pwd"})
		if c, _ := entry.As[entry.Command](e); c.SandboxID == "" {
			t.Error("a command does not name the sandbox that its thread is on")
		}
	})
	t.Run("is a chat when it is meant literally", func(t *testing.T) {
		isChat(t, b.says(b.runner(), th, dispatch.Message{Text: "!ls", Literal: true}), "!ls")
		isChat(t, b.says(b.runner(), th, dispatch.Message{Text: "!", Literal: true}), "!")
	})
	t.Run("is refused with a list of commands if it is a slash and an unknown word", func(t *testing.T) {
		for _, text := range []string{"/shrug", "/runn make test"} {
			_, err := b.dispatcher.Say(t.Context(), b.runner(), th, dispatch.Message{Text: text})
			word := strings.Fields(text)[0]
			if f := fault.From(err); f.Code != fault.Invalid || f.Message != "there is no command "+word || !strings.Contains(f.Next, "/run COMMAND") || !strings.Contains(f.Next, "/"+word) {
				t.Errorf("%q: %v", text, err)
			}
			isChat(t, b.says(b.runner(), th, dispatch.Message{Text: text, Literal: true}), text)
			isChat(t, b.says(b.runner(), th, dispatch.Message{Text: " " + text}), " "+text)
			isChat(t, b.says(b.talker(), th, dispatch.Message{Text: text}), text)
			isChat(t, b.says(b.talker(), th, dispatch.Message{Text: "/" + text}), "/"+text)
		}
		for text, says := range map[string]string{
			"//shrug <b>": "/shrug <b>", "//run make": "/run make", "/etc/hosts is wrong": "/etc/hosts is wrong", "// it": "// it", "/": "/",
		} {
			isChat(t, b.says(b.runner(), th, dispatch.Message{Text: text}), says)
		}
		first := b.says(b.runner(), th, dispatch.Message{ID: "escaped", Text: "//shrug", ReplyTo: "one"})
		if again := b.says(b.runner(), th, dispatch.Message{ID: "escaped", Text: "//shrug", ReplyTo: "one"}); again.Seq != first.Seq {
			t.Errorf("said again it is entry %d, was %d", again.Seq, first.Seq)
		}
		if c, _ := entry.As[entry.Chat](first); c.ReplyTo != "one" {
			t.Errorf("it answers %q", c.ReplyTo)
		}
	})
	t.Run("is a chat when its author may not run commands", func(t *testing.T) {
		isChat(t, b.says(b.talker(), th, dispatch.Message{Text: "/run ls"}), "/run ls")
		isChat(t, b.says(dispatch.Speaker{Scope: b.scope}, th, dispatch.Message{Text: "!ls"}), "!ls")
	})
	t.Run("asks who may run commands only for commands, and obeys every answer", func(t *testing.T) {
		by := dispatch.Speaker{Scope: b.scope, MayRun: func(context.Context) error { return errors.New("no answer") }}
		isChat(t, b.says(by, th, dispatch.Message{Text: "hello!"}), "hello!")
		if _, err := b.dispatcher.Say(t.Context(), by, th, dispatch.Message{Text: "!ls"}); err == nil || err.Error() != "no answer" {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("repeated with the same id is done once, and something else with it is refused", func(t *testing.T) {
		other := func(w dispatch.Message) {
			t.Helper()
			_, err := b.dispatcher.Say(t.Context(), b.runner(), th, w)
			wantCode(t, err, fault.Exists)
		}
		b.says(b.runner(), th, dispatch.Message{ID: "chat", Text: "!once", Literal: true})
		isChat(t, b.says(b.runner(), th, dispatch.Message{ID: "chat", Text: "!once", Literal: true}), "!once")
		other(dispatch.Message{ID: "chat", Text: "!once"})
		first := b.says(b.runner(), th, dispatch.Message{ID: "command", Text: "!twice"})
		gated.HasBegun(t, "twice")
		if again := b.says(b.runner(), th, dispatch.Message{ID: "command", Text: "!twice"}); again.Seq != first.Seq || again.Type != first.Type || string(again.Payload) != string(first.Payload) {
			t.Errorf("it is %s %s", again.Type, again.Payload)
		}
		for _, w := range []dispatch.Message{{Text: "!other"}, {Text: "hello"}, {Text: "!twice", Literal: true}} {
			w.ID = "command"
			other(w)
		}
		gated.End("twice")
		b.result(th, "command")
		for _, line := range gated.Order() {
			if line == "once" || line == "other" || line == "never" {
				t.Errorf("%s ran", line)
			}
		}
		if n := strings.Count(strings.Join(gated.Order(), " "), "twice"); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
	t.Run("runs no command again that a fork inherited", func(t *testing.T) {
		fork, err := b.threads.Fork(t.Context(), b.scope, th, thread.Fork{})
		if err != nil {
			t.Fatal(detail(err))
		}
		_, err = b.dispatcher.Say(t.Context(), b.runner(), fork.ID, dispatch.Message{ID: "command", Text: "!twice"})
		wantCode(t, err, fault.Exists)
	})
	t.Run("refuses what cannot be said", func(t *testing.T) {
		before := len(b.entries(th))
		for what, c := range map[string]struct {
			w    dispatch.Message
			code fault.Code
		}{
			"nothing":         {dispatch.Message{Text: " \n"}, fault.Invalid},
			"no command":      {dispatch.Message{Text: "/run "}, fault.Invalid},
			"a NUL byte":      {dispatch.Message{Text: "!ls \x00"}, fault.Invalid},
			"a result's id":   {dispatch.Message{ID: "c.result", Text: "!ls"}, fault.Invalid},
			"a text too long": {dispatch.Message{Text: strings.Repeat("x", entry.MaxText+1)}, fault.Exhausted},
		} {
			if _, err := b.dispatcher.Say(t.Context(), b.runner(), th, c.w); fault.CodeOf(err) != c.code {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := b.dispatcher.Say(t.Context(), b.runner(), "nosuchthread", dispatch.Message{Text: "!ls"})
		wantCode(t, err, fault.NotFound)
		_, err = b.dispatcher.Say(t.Context(), b.runner(), "nosuchthread", dispatch.Message{Text: "hello"})
		wantCode(t, err, fault.NotFound)
		if after := len(b.entries(th)); after != before {
			t.Errorf("it left %d entries", after-before)
		}
	})
}

func TestSayAll(t *testing.T) {
	t.Parallel()
	b, gated := onGated(t, 1, dispatch.Limits{Commands: jobs.Limits{ThreadRunning: 1, ThreadWaiting: 1}})
	th := b.thread(sandbox.Recipe{})
	texts := func(name string, list ...string) (w stream.Write, literal []bool) {
		w = stream.Write{ContentType: "application/json", Producer: &stream.Producer{Name: name}}
		for i, text := range list {
			words := dispatch.Message{ID: name + string(rune('0'+i)), Text: text}
			w.Content = append(w.Content, words.Chat(b.scope.Agent))
			literal = append(literal, strings.HasSuffix(text, "literally"))
		}
		return w, literal
	}
	kinds := func() (all string) {
		for _, e := range b.entries(th) {
			all += e.ID + ":" + e.Type + " "
		}
		return all
	}
	t.Run("says all of it, once", func(t *testing.T) {
		w, literal := texts("p", "hello", "!first", "!as it is, literally", "bye")
		for _, want := range []stream.WriteOutcome{stream.Accepted, stream.Duplicate} {
			done, err := b.dispatcher.SayAll(t.Context(), b.runner(), th, w, literal)
			if err != nil || done.Outcome != want {
				t.Fatalf("the outcome is %v (%s)", done.Outcome, detail(err))
			}
		}
		gated.HasBegun(t, "first")
		if got := kinds(); got != "p0:chat p1:command p2:chat p3:chat " {
			t.Errorf("the log is %s", got)
		}
	})
	before := kinds()
	t.Run("says none of it when a command may not even wait", func(t *testing.T) {
		w, literal := texts("q", "hello", "!second", "!third")
		_, err := b.dispatcher.SayAll(t.Context(), b.runner(), th, w, literal)
		wantCode(t, err, fault.Exhausted)
		if got := kinds(); got != before {
			t.Errorf("the log is %s", got)
		}
	})
	t.Run("says none of it when its state forbids that", func(t *testing.T) {
		w, literal := texts("r", "!second")
		w.Producer.Seq = 7
		done, err := b.dispatcher.SayAll(t.Context(), b.runner(), th, w, literal)
		if err != nil || done.Outcome != stream.Gap || kinds() != before {
			t.Errorf("the outcome is %v (%s), the log %s", done.Outcome, detail(err), kinds())
		}
	})
	t.Run("is unchanged if the speaker may not run commands", func(t *testing.T) {
		w, literal := texts("s", "!second")
		if _, err := b.dispatcher.SayAll(t.Context(), b.talker(), th, w, literal); err != nil {
			t.Fatal(detail(err))
		}
		if got := kinds(); got != before+"s0:chat " {
			t.Errorf("the log is %s", got)
		}
	})
	gated.End("first")
	b.result(th, "p1")
	if got := strings.Join(gated.Order(), " "); got != "first" {
		t.Errorf("these ran: %s", got)
	}
}

// Neither a chat nor a name reveals whether a guess of a secret was right: both stay as written.
func TestASecretThatIsGuessedIsSaidAsItIs(t *testing.T) {
	t.Parallel()
	b, _ := onGated(t, 0, dispatch.Limits{})
	b.withSecrets()
	b.server = b.serve()
	th := b.thread(sandbox.Recipe{})
	if said := b.says(b.talker(), th, dispatch.Message{Text: "is it " + commandtest.Canary + "?"}); !strings.Contains(string(said.Payload), commandtest.Canary) {
		t.Errorf("a guess in a chat is answered with %s", said.Payload)
	}
	named, err := b.threads.Create(t.Context(), b.scope, thread.Draft{Name: "is it " + commandtest.Canary})
	if err != nil || !strings.Contains(named.Name, commandtest.Canary) {
		t.Errorf("a guess in a name is answered with %q (%v)", named.Name, err)
	}
}
