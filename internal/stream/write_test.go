package stream_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// A server remembers the description of a log that it wrote to. It must still notice what another server did to the log since.
func TestWritingToALogThatAnotherServerChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.open()
	write := func(t *testing.T, l *stream.Log, ref stream.Ref, contentType, content string) (stream.Written, error) {
		t.Helper()
		drafts, err := stream.Drafts(contentType, b.member, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		return l.Write(t.Context(), ref, stream.Write{ContentType: contentType, Content: drafts})
	}
	remembered := func(t *testing.T, b *bench, name string) stream.Ref {
		t.Helper()
		ref := b.make(name, stream.CreateOptions{}).Ref
		for range 2 {
			if done, err := write(t, b.log, ref, "application/json", "1"); err != nil || done.Outcome != stream.Accepted {
				t.Fatal(done.Outcome, err)
			}
		}
		return ref
	}
	closing := func(t *testing.T, ref stream.Ref) {
		if _, err := other.Write(t.Context(), ref, stream.Write{Close: true}); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, "closed", func(t *testing.T, b *bench) {
		ref := remembered(t, b, "closed")
		closing(t, ref)
		if done, err := write(t, b.log, ref, "application/json", "2"); err != nil || done.Outcome != stream.Closed || done.Stream.Tail != 2 {
			t.Errorf("outcome %d at %d, %v; want Closed at 2", done.Outcome, done.Stream.Tail, err)
		}
	})
	b.run(t, "deleted", func(t *testing.T, b *bench) {
		ref := remembered(t, b, "deleted")
		if err := other.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if _, err := write(t, b.log, ref, "application/json", "2"); fault.CodeOf(err) != fault.NotFound || errors.Is(err, stream.ErrGone) {
			t.Errorf("it says %v; want NotFound", err)
		}
	})
	b.run(t, "deleted, with a fork", func(t *testing.T, b *bench) {
		ref := remembered(t, b, "forked")
		b.make("fork", stream.CreateOptions{Fork: &stream.ForkPoint{Source: ref.Name, Seq: -1}})
		if err := other.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if _, err := write(t, b.log, ref, "application/json", "2"); !errors.Is(err, stream.ErrGone) {
			t.Errorf("it says %v; want that the stream is gone", err)
		}
	})
	b.run(t, "deleted and created again with another type", func(t *testing.T, b *bench) {
		ref := remembered(t, b, "typed")
		if err := other.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		b.make(ref.Name, stream.CreateOptions{ContentType: "text/plain"})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if done, err := write(t, b.log, ref, "application/json", "2"); err != nil || done.Outcome != stream.OtherContent {
					t.Errorf("outcome %d, %v; want OtherContent", done.Outcome, err)
				}
			})
		}
		all.Wait()
		if done, err := write(t, b.log, ref, "text/plain", "2"); err != nil || done.Outcome != stream.Accepted || done.Stream.Tail != 1 {
			t.Errorf("outcome %d at %d, %v; want it accepted as the first entry", done.Outcome, done.Stream.Tail, err)
		}
	})
	b.run(t, "deleted and created again with the same options", func(t *testing.T, b *bench) {
		ref := remembered(t, b, "anew")
		if err := other.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		b.make(ref.Name, stream.CreateOptions{})
		if done, err := write(t, b.log, ref, "application/json", "2"); err != nil || done.Outcome != stream.Accepted || done.Stream.Tail != 1 {
			t.Errorf("outcome %d at %d, %v; want it accepted as the first entry", done.Outcome, done.Stream.Tail, err)
		}
	})
}

func TestAWriteWhoseCommitLostItsAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		name  string
		write stream.Write
	}{
		{"of a producer", stream.Write{Producer: &stream.Producer{Name: "p"}}},
		{"with a Seq", stream.Write{Seq: "a"}},
	} {
		b.run(t, c.name+" is accepted at its position, whatever was written or closed meanwhile", func(t *testing.T, b *bench) {
			ref := b.make("unanswered "+c.name, stream.CreateOptions{}).Ref
			l, proxy := b.proxied()
			c.write.ContentType = "application/json"
			var err error
			if c.write.Content, err = stream.Drafts(c.write.ContentType, b.member, []byte(`["one", "two"]`)); err != nil {
				t.Fatal(err)
			}
			meanwhile := make(chan error, 1)
			proxy.LoseCommit(func() {
				drafts, _ := stream.Drafts(c.write.ContentType, b.member, []byte(`"three"`))
				_, err := b.log.Write(t.Context(), ref, stream.Write{ContentType: c.write.ContentType, Content: drafts, Close: true})
				meanwhile <- err
			})
			done, err := l.Write(t.Context(), ref, c.write)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-meanwhile; err != nil {
				t.Fatal(err)
			}
			if done.Outcome != stream.Accepted || done.Stream.Tail != 2 || done.Stream.Closed {
				t.Errorf("outcome %d, and the log ends at %d, closed %t; want it accepted at 2", done.Outcome, done.Stream.Tail, done.Stream.Closed)
			}
			if got := b.numbers(ref, stream.Range{}); got != `"one" "two" "three"` {
				t.Errorf("the log holds %s", got)
			}
		})
	}
}
