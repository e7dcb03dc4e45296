package stream_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestDeltas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.open()

	b.run(t, "reach the tails of this and of other servers, once and in order, and are not in the log", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("live")
		here, there := b.follow(b.log, ref), b.follow(other, ref)
		out := output{b: b, log: b.log, ref: ref, id: "x"}
		for _, s := range []string{"one ", "two ", "\x00\xff\xfe", strings.Repeat("three ", 10_000)} {
			out.print(s)
		}
		here.wantDeltas("x", 0, out.all)
		there.wantDeltas("x", 0, out.all)
		if _, tail, _ := b.log.Read(t.Context(), ref, stream.Range{}); tail != 0 {
			t.Errorf("the log has %d entries", tail)
		}
	})

	b.run(t, "published before a tail joined are sent to it, on all servers", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("late")
		early := b.follow(other, ref)
		out := output{b: b, log: b.log, ref: ref, id: "x"}
		out.print("printed before ")
		early.wantDeltas("x", 0, out.all) // the other server has it
		here, there := b.follow(b.log, ref), b.follow(other, ref)
		out.print("and after")
		here.wantDeltas("x", 0, out.all)
		there.wantDeltas("x", 0, out.all)
	})

	b.run(t, "of a bot's step end", func(t *testing.T, b *bench) {
		t.Parallel()
		for name, c := range map[string]struct {
			written []string
			entry   string
			left    string
		}{
			"with the step's entry":                         {[]string{"turn.t.1~1.1", "turn.t.2~1.2"}, "turn.t.1", "turn.t.2~1.2"},
			"when the model is called again for it":         {[]string{"turn.t.1~1.1", "turn.t.1~1.2", "turn.t.1~1.10"}, "", "turn.t.1~1.10"},
			"when another server calls the model for it":    {[]string{"turn.t.1~1.7", "turn.t.1~2.1"}, "", "turn.t.1~2.1"},
			"even if they come after those of a newer call": {[]string{"turn.t.1~1.2", "turn.t.1~1.1"}, "", "turn.t.1~1.2"},
			"with the turn, if it leaves no entry":          {[]string{"turn.t.1~1.1", "turn.u.1~1.1"}, "turn.t.end", "turn.u.1~1.1"},
		} {
			b.run(t, name, func(t *testing.T, b *bench) {
				ref := b.stream("step " + name)
				for _, id := range c.written {
					out := output{b: b, log: b.log, ref: ref, id: id}
					out.print("written as " + id)
				}
				if c.entry != "" {
					if _, err := b.log.Append(t.Context(), ref, entry.NewDraft(c.entry, "", entry.Chat{Text: "the step"})); err != nil {
						t.Fatal(err)
					}
				}
				last := output{b: b, log: b.log, ref: ref, id: "last"}
				last.print("and this comes last")
				late := b.follow(b.log, ref)
				var left []string
				for d := late.delta(); d.EntryID != "last"; d = late.delta() {
					left = append(left, d.EntryID)
				}
				if !slices.Equal(left, []string{c.left}) {
					t.Errorf("a tail that joins late is sent the deltas %q, want %s", left, c.left)
				}
			})
		}
	})

	b.run(t, "of long output are at least its last 64 KiB for a tail that joins late", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("long")
		out := output{b: b, log: b.log, ref: ref, id: "x"}
		noise := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			line := make([]byte, noise.IntN(8<<10))
			for i := range line {
				line[i] = byte(noise.Uint32())
			}
			out.print(string(line))
		}
		d := b.follow(b.log, ref).delta()
		if d.Offset > int64(len(out.all))-64<<10 {
			t.Errorf("it starts at %d of %d", d.Offset, len(out.all))
		}
		if !bytes.Equal(d.Data, out.all[d.Offset:]) {
			t.Error("it is not what was printed there")
		}
	})

	b.run(t, "never follow their entry", func(t *testing.T, b *bench) {
		t.Parallel()
		for name, appendTo := range map[string]func(ref stream.Ref){
			"written by this server": func(ref stream.Ref) { b.say(ref, "x", "done") },
			"written by another server": func(ref stream.Ref) {
				if _, err := other.Append(t.Context(), ref, b.chat("x", "done")); err != nil {
					t.Error(err)
				}
			},
			"written in a transaction": func(ref stream.Ref) {
				b.in(func(tx pgx.Tx) error {
					_, err := b.log.AppendTx(t.Context(), tx, ref, b.chat("x", "done"))
					return err
				})
			},
		} {
			b.run(t, name, func(t *testing.T, b *bench) {
				ref := b.stream("finished " + name)
				early := b.follow(b.log, ref)
				out := output{b: b, log: b.log, ref: ref, id: "x"}
				out.print("working")
				early.wantDeltas("x", 0, out.all)
				early.stop() // so that no tail sees the entry
				if err := early.end(); err != nil {
					t.Fatal(err)
				}
				appendTo(ref)
				replaying, atEnd := b.follow(b.log, ref), b.tail(b.log, ref, 1)
				atEnd.caughtUp()
				out.print(" late")
				next := output{b: b, log: b.log, ref: ref, id: "y"}
				next.print("next")
				for _, w := range []*tail{replaying, atEnd} {
					if d := w.delta(); d.EntryID != "y" {
						t.Errorf("got %q of %s after its entry", d.Data, d.EntryID)
					}
				}
			})
		}
	})

	b.run(t, "sent twice are left out the second time", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("twice")
		w := b.follow(b.log, ref)
		for _, d := range []stream.Delta{{EntryID: "x", Offset: 0, Data: []byte("abc")}, {EntryID: "x", Offset: 0, Data: []byte("abc")}, {EntryID: "x", Offset: 2, Data: []byte("cde")}, {EntryID: "x", Offset: 5, Data: []byte("f")}} {
			if err := b.log.Publish(t.Context(), ref, d); err != nil {
				t.Fatal(err)
			}
		}
		w.wantDeltas("x", 0, []byte("abcdef"))
	})

	b.run(t, "show by their offset that bytes were skipped", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("hole")
		w := b.follow(b.log, ref)
		for _, d := range []stream.Delta{{EntryID: "x", Offset: 0, Data: []byte("abc")}, {EntryID: "x", Offset: 10, Data: []byte("def")}} {
			if err := b.log.Publish(t.Context(), ref, d); err != nil {
				t.Fatal(err)
			}
		}
		for d := w.delta(); d.Offset != 10; d = w.delta() {
			if string(d.Data) != "abc" || d.Offset != 0 {
				t.Fatalf("got %q at %d", d.Data, d.Offset)
			}
		}
	})

	b.run(t, "that name no stream or no entry are refused", func(t *testing.T, b *bench) {
		t.Parallel()
		ref := b.stream("refuse")
		wantCode(t, b.log.Publish(t.Context(), stream.Ref{House: b.house, Name: "nowhere"}, stream.Delta{EntryID: "x", Data: []byte("x")}), fault.NotFound)
		wantCode(t, b.log.Publish(t.Context(), ref, stream.Delta{Data: []byte("x")}), fault.Invalid)
		wantCode(t, b.log.Publish(t.Context(), ref, stream.Delta{EntryID: strings.Repeat("x", 201), Data: []byte("x")}), fault.Invalid)
		wantCode(t, b.log.Publish(t.Context(), ref, stream.Delta{EntryID: "x", Offset: -1, Data: []byte("x")}), fault.Invalid)
	})
}

// output publishes what a program prints.
type output struct {
	b   *bench
	log *stream.Log
	ref stream.Ref
	id  string
	all []byte
}

func (o *output) print(s string) {
	o.b.t.Helper()
	if err := o.log.Publish(o.b.t.Context(), o.ref, stream.Delta{EntryID: o.id, Offset: int64(len(o.all)), Data: []byte(s)}); err != nil {
		o.b.t.Fatal(err)
	}
	o.all = append(o.all, s...)
}

// follow is a tail from the start that has caught up.
func (b *bench) follow(l *stream.Log, ref stream.Ref) *tail {
	w := b.tail(l, ref, 0)
	w.caughtUp()
	return w
}

// delta skips to the next delta.
func (w *tail) delta() stream.Delta {
	w.t.Helper()
	for {
		if ev := w.next(); ev.Delta != nil {
			return *ev.Delta
		}
	}
}

// wantDeltas reads deltas until they make up want, without gaps or repetitions.
func (w *tail) wantDeltas(id string, from int64, want []byte) {
	w.t.Helper()
	var got []byte
	for int64(len(got)) < int64(len(want))-from {
		d := w.delta()
		if d.EntryID != id || d.Offset != from+int64(len(got)) {
			w.t.Fatalf("got a delta of %s at %d, want %s at %d", d.EntryID, d.Offset, id, from+int64(len(got)))
		}
		got = append(got, d.Data...)
	}
	if !bytes.Equal(got, want[from:]) {
		w.t.Fatalf("the deltas are not what was published")
	}
}
