//go:build linux

package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/thread"
)

// touched returns the row of a thread after a touch.
func (b *bench) touched(th string) func() thread.Thread {
	b.t.Helper()
	var stream int64
	if err := b.Owner(b.t).QueryRow(b.t.Context(), "select s.id from streams s join threads t on t.stream_id = s.name where t.id = $1", th).Scan(&stream); err != nil {
		b.t.Fatal(err)
	}
	return func() thread.Thread {
		b.t.Helper()
		for late := time.Now().Add(patience); ; { // touching a locked thread is retried
			again, err := b.threads.Touch(b.t.Context(), []int64{stream})
			if err != nil {
				b.t.Fatal(detail(err))
			}
			if len(again) == 0 {
				break
			}
			if time.Now().After(late) {
				b.t.Fatal("the thread stays locked")
			}
		}
		got, err := b.threads.Get(b.t.Context(), b.scope, th)
		if err != nil {
			b.t.Fatal(detail(err))
		}
		return got
	}
}

func TestTheRowOfAThreadSaysWhatWasSaidLastAndWhatRuns(t *testing.T) {
	t.Parallel()
	b, gated := onGated(t, 1, dispatch.Limits{})
	th := b.thread(sandbox.Recipe{})
	row := b.touched(th)
	last := func() string {
		if said := row().LastSaid; said != nil {
			return said.AuthorName + ": " + said.Text
		}
		return ""
	}
	wants := func(t *testing.T, want string) {
		t.Helper()
		if got := last(); got != want {
			t.Errorf("the last thing said is %q, want %q", got, want)
		}
	}
	wants(t, "")
	b.says(b.runner(), th, dispatch.Message{Text: "hello\n\n  there"})
	wants(t, "Ada: hello there")
	command := b.ask(th, "make slow")
	wants(t, "Ada: $ make slow")
	if r := row().Running; r == nil || r.Command != command || r.Since.IsZero() {
		t.Errorf("what runs is %+v", r)
	}
	gated.HasBegun(t, "make slow")
	gated.End("make slow")
	b.result(th, command)
	if r := row().Running; r != nil {
		t.Errorf("what runs is %+v", r)
	}
	wants(t, "Ada: $ make slow") // the result is not something said
	files := entry.Chat{Text: " \n", Attachments: []entry.Attachment{{ArtifactID: "a1", Name: "plan.pdf"}, {ArtifactID: "a2"}}}
	if _, err := b.log.Append(t.Context(), b.ref(th), entry.NewDraft("files", b.scope.Agent, files)); err != nil {
		t.Fatal(detail(err))
	}
	wants(t, "Ada: [file: plan.pdf] [file: a2]")

	t.Run("and a hostile text does no harm", func(t *testing.T) {
		for i, payload := range []string{`{"text":"\u0000"}`, `{"text":"\ud800 half a character"}`} {
			draft := entry.Draft{ID: fmt.Sprint("hostile", i), Author: b.scope.Agent, Type: "chat", Payload: []byte(payload)}
			if _, err := b.log.Append(t.Context(), b.ref(th), draft); err == nil {
				wants(t, "")
			}
		}
		b.says(b.runner(), th, dispatch.Message{Text: "after"})
		wants(t, "Ada: after")
	})
}

func TestTheRowOfAThreadSaysWhichBotIsAtWork(t *testing.T) {
	t.Parallel()
	atWork := func(t *testing.T, r *botBench, row func() thread.Thread) {
		t.Helper()
		switch w := row().Running; {
		case w == nil:
			t.Error("nothing runs")
		case w.Turn == "" || w.Command != "" || w.Agent != r.bot || w.AgentName != "Bot" || w.Since.IsZero():
			t.Errorf("what runs is %+v", w)
		}
	}
	// This server has no live pictures that touch threads, so nothing else touches the row.
	holding := func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "one two", Hold: true} }
	for name, end := range map[string]func(*botBench){
		"it answers": func(r *botBench) { r.letGo(); r.answer("q") },
		"it is stopped": func(r *botBench) {
			r.stopAll(1)
			r.end("q")
		},
	} {
		t.Run("until "+name, func(t *testing.T) {
			t.Parallel()
			r := bots(t, holding)
			row := r.touched(r.th)
			if w := row().Running; w != nil {
				t.Errorf("before anything was asked, %+v runs", w)
			}
			r.says("q", "@bot go")
			r.awaitRequests(1)
			atWork(t, r, row)
			changed := row().UpdatedAt
			end(r)
			if got := row(); got.Running != nil || !got.UpdatedAt.Equal(changed) {
				t.Errorf("when it has ended, %+v runs in a thread that was changed at %s, want %s", got.Running, got.UpdatedAt, changed)
			}
		})
	}
	t.Run("until it ends in a thread that was closed", func(t *testing.T) {
		t.Parallel()
		r := bots(t, holding)
		row := r.touched(r.th)
		r.says("q", "@bot go")
		r.awaitRequests(1)
		if _, err := r.threads.Update(t.Context(), r.scope, r.th, thread.Change{Status: new(thread.Closed)}); err != nil {
			t.Fatal(detail(err))
		}
		atWork(t, r, row)
		r.letGo()
		owner := r.Owner(t)
		for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			var active int
			if err := owner.QueryRow(t.Context(), "select count(*) from turns where ended_at is null").Scan(&active); err != nil {
				t.Fatal(err)
			}
			if active == 0 {
				break
			}
			if time.Now().After(late) {
				t.Fatal("the turn goes on")
			}
		}
		r.end("q")
		if got := row(); got.Running != nil {
			t.Errorf("%+v still runs", got.Running)
		}
	})
	t.Run("or asks for a person's approval", func(t *testing.T) {
		t.Parallel()
		r := asking(t, plans("Plan", "Release"), entry.CreateThreadTool)
		row := r.touched(r.th)
		counts := func(when string, want int) {
			t.Helper()
			if got := row(); got.OpenApprovals != want {
				t.Errorf("%s it has %d open approvals, want %d", when, got.OpenApprovals, want)
			}
		}
		counts("before anything was asked", 0)
		r.says("q", "@bot make plans")
		all := r.asks(2)
		counts("when the bot has asked twice", 2)
		r.approve(all[0].ApprovalID)
		counts("after one answer", 1)
		r.stopAll(1)
		r.end("q")
		counts("when its turn was stopped", 0)
	})
	t.Run("a row that was left behind is repaired", func(t *testing.T) {
		t.Parallel()
		r := bots(t, holding)
		row := r.touched(r.th)
		r.says("q", "@bot go")
		r.awaitRequests(1)
		w := row().Running
		r.letGo()
		r.answer("q")
		row()
		if _, err := r.Owner(t).Exec(t.Context(), "update threads set running_id = $2, running_agent = $3, running_since = now() where id = $1", r.th, w.Turn, w.Agent); err != nil {
			t.Fatal(err)
		}
		if w := row().Running; w != nil {
			t.Errorf("%+v still runs", w)
		}
	})
	t.Run("a command that was asked for earlier comes first", func(t *testing.T) {
		t.Parallel()
		gated := newGated()
		r := botsOn(t, gated, holding)
		r.th = r.thread(sandbox.Recipe{})
		row := r.touched(r.th)
		command := r.ask(r.th, "make slow")
		gated.HasBegun(t, "make slow")
		r.says("q", "@bot go")
		r.awaitRequests(1)
		if w := row().Running; w == nil || w.Command != command || w.Turn != "" || w.Agent != "" {
			t.Errorf("what runs is %+v", w)
		}
		gated.End("make slow")
		r.result(r.th, command)
		atWork(t, r, row)
	})
}
