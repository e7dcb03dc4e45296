package stream_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.stream("ten")
	for i := range 10 {
		b.say(ref, fmt.Sprint("e", i+1), "hello")
	}

	for name, c := range map[string]struct {
		r    stream.Range
		want []int64
	}{
		"all of it":                      {stream.Range{}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		"after a position":               {stream.Range{After: 8}, []int64{9, 10}},
		"before a position":              {stream.Range{Before: 3}, []int64{1, 2}},
		"between two":                    {stream.Range{After: 3, Before: 6}, []int64{4, 5}},
		"the first few":                  {stream.Range{Limit: 2}, []int64{1, 2}},
		"the last few, still ascending":  {stream.Range{Last: true, Limit: 2}, []int64{9, 10}},
		"the last few before a position": {stream.Range{Last: true, Before: 5, Limit: 2}, []int64{3, 4}},
		"nothing after the last":         {stream.Range{After: 10}, nil},
		"a limit larger than any log":    {stream.Range{Limit: 1 << 30, After: 9}, []int64{10}},
	} {
		b.run(t, name, func(t *testing.T, b *bench) {
			got, tail, err := b.log.Read(t.Context(), ref, c.r)
			if err != nil || tail != 10 || !slices.Equal(seqs(got), c.want) {
				t.Errorf("got %v up to %d, %v; want %v", seqs(got), tail, err, c.want)
			}
		})
	}

	b.run(t, "a page of large entries is short, never empty, and has no gap", func(t *testing.T, b *bench) {
		ref := b.stream("large")
		draft := b.chat("", strings.Repeat("x", 3<<20)) // the log chooses the ids
		for range 5 {
			if _, err := b.log.Append(t.Context(), ref, draft); err != nil {
				t.Fatal(err)
			}
		}
		first, tail, err := b.log.Read(t.Context(), ref, stream.Range{})
		if err != nil || tail != 5 || !slices.Equal(seqs(first), []int64{1, 2, 3}) {
			t.Errorf("forward: %v up to %d, %v", seqs(first), tail, err)
		}
		last, _, err := b.log.Read(t.Context(), ref, stream.Range{Last: true})
		if err != nil || !slices.Equal(seqs(last), []int64{3, 4, 5}) {
			t.Errorf("backward: %v, %v", seqs(last), err)
		}
	})

	b.run(t, "entries come back as they were written, small or large, whoever wrote them", func(t *testing.T, b *bench) {
		ref := b.stream("mixed")
		var written []entry.Entry
		write := func(author, kind, text string) {
			draft := entry.Draft{Author: author, Type: kind, Payload: []byte(fmt.Sprintf("{ \"text\": %q }", text))}
			got, err := b.log.Append(t.Context(), ref, draft)
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, got...)
		}
		same := func() {
			t.Helper()
			if got, _, err := b.log.Read(t.Context(), ref, stream.Range{}); err != nil || !reflect.DeepEqual(got, written) {
				t.Errorf("read %v, %v; wrote %v", got, err, written)
			}
		}
		write(b.member, "chat", "by a member")
		write("", "chat", "by nobody")
		write(b.member, "chat", "by the member again")
		write(b.colleague(), "note", "by another")
		same()
		write(b.member, "chat", strings.Repeat("stored compressed", 1000))
		same()
	})

	b.run(t, "one entry is found by its id", func(t *testing.T, b *bench) {
		if e, err := b.log.Get(t.Context(), ref, "e7"); err != nil || e.Seq != 7 {
			t.Errorf("got %+v, %v", e, err)
		}
		_, err := b.log.Get(t.Context(), ref, "e11")
		wantCode(t, err, fault.NotFound)
	})

	b.run(t, "the error for a position past the end names the position and the end", func(t *testing.T, b *bench) {
		_, _, err := b.log.Read(t.Context(), ref, stream.Range{After: 12})
		wantCode(t, err, fault.OutOfRange)
		if msg := err.Error(); !strings.Contains(msg, "12") || !strings.Contains(msg, "10") {
			t.Errorf("%q does not name both positions", msg)
		}
	})

	b.run(t, "negative positions are refused", func(t *testing.T, b *bench) {
		for _, r := range []stream.Range{{After: -1}, {Before: -1}, {Limit: -1}} {
			_, _, err := b.log.Read(t.Context(), ref, r)
			wantCode(t, err, fault.Invalid)
		}
	})

	b.run(t, "another house sees no such log", func(t *testing.T, b *bench) {
		other := stream.Ref{House: "other", Name: ref.Name}
		_, _, err := b.log.Read(t.Context(), other, stream.Range{})
		wantCode(t, err, fault.NotFound)
		_, err = b.log.Get(t.Context(), other, "e1")
		wantCode(t, err, fault.NotFound)
		wantCode(t, b.tail(b.log, other, 0).end(), fault.NotFound)
	})
}

func seqs(entries []entry.Entry) (seqs []int64) {
	for _, e := range entries {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

// colleague creates another member of the house.
func (b *bench) colleague() (id string) {
	b.t.Helper()
	err := b.Owner(b.t).QueryRow(b.t.Context(), `
		with a as (insert into agents (kind, name) values ('human', 'Grace') returning id)
		insert into members (house_id, agent_id, role) select $1, id, 'member' from a returning agent_id::text`, b.house).Scan(&id)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// takeNothing takes the entries of a page.
func takeNothing(stream.Stream) stream.Take { return func(*entry.Entry) {} }
