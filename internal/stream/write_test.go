package stream_test

import (
	"testing"

	"github.com/arbe-dev/arbe/internal/stream"
)

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
		b.run(t, c.name+" is accepted where it is, whatever was written and closed meanwhile", func(t *testing.T, b *bench) {
			ref := b.make("unanswered "+c.name, stream.Making{}).Ref
			l, loses := b.lossy()
			c.write.ContentType = "application/json"
			var err error
			if c.write.Content, err = stream.Drafts(c.write.ContentType, b.member, []byte(`["one", "two"]`)); err != nil {
				t.Fatal(err)
			}
			meanwhile := make(chan error, 1)
			loses.meanwhile = func() {
				drafts, _ := stream.Drafts(c.write.ContentType, b.member, []byte(`"three"`))
				_, err := b.log.Write(t.Context(), ref, stream.Write{ContentType: c.write.ContentType, Content: drafts, Close: true})
				meanwhile <- err
			}
			loses.nextCommit.Store(true)
			done, err := l.Write(t.Context(), ref, c.write)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-meanwhile; err != nil {
				t.Fatal(err)
			}
			if done.Verdict != stream.Accepted || done.Stream.Tail != 2 || done.Stream.Closed {
				t.Errorf("verdict %d, and the log ends at %d, closed %t; want it accepted at 2", done.Verdict, done.Stream.Tail, done.Stream.Closed)
			}
			if got := b.numbers(ref, stream.Range{}); got != `"one" "two" "three"` {
				t.Errorf("the log holds %s", got)
			}
		})
	}
}
