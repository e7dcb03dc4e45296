package command

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Keys typed into a terminal are never typed twice. They may be lost with a server.
func TestKeysAreTypedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unknown bool
		keys    []Keys
		want    string
	}{
		"in order":                             {keys: []Keys{{Data: []byte("ab")}, {Position: 2, Data: []byte("c")}}, want: "abc"},
		"a call is repeated":                   {keys: []Keys{{Data: []byte("ab")}, {Data: []byte("ab"), Again: true}, {Position: 2, Data: []byte("c")}}, want: "abc"},
		"a server continues":                   {unknown: true, keys: []Keys{{Position: 7, Data: []byte("ab")}, {Position: 9, Data: []byte("c")}}, want: "abc"},
		"a server continues, and a call, too":  {unknown: true, keys: []Keys{{Position: 7, Data: []byte("ab"), Again: true}, {Position: 9, Data: []byte("c")}}, want: "c"},
		"another writer joins":                 {keys: []Keys{{Data: []byte("ab")}, {Position: 99, Join: true}, {Position: 2, Data: []byte("c")}}, want: "abc"},
		"another writer joins where it is new": {unknown: true, keys: []Keys{{Join: true}, {Data: []byte("c")}}, want: "c"},
		"a terminal has no end of input":       {keys: []Keys{{Data: []byte("a"), End: true}, {Position: 1, Data: []byte("b")}}, want: "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInput()
			i.terminal, i.unknown = true, c.unknown
			r := i.reader(t.Context())
			for _, k := range c.keys {
				if w, err := i.write(t.Context(), k, time.Now().Add(time.Minute)); err != nil || w.Closed {
					t.Fatalf("%+v: %+v, %v", k, w, err)
				}
			}
			got := make([]byte, 100)
			n, err := r.Read(got)
			if string(got[:n]) != c.want || err != nil {
				t.Errorf("it reads %q, %v", got[:n], err)
			}
		})
	}
}

func TestATerminalWithoutAnybodyIsHungUpOnUnlessItIsKept(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			i := newInput()
			i.terminal, i.kept = true, kept
			ctx, leave := context.WithTimeout(t.Context(), time.Hour)
			defer leave()
			begin := time.Now()
			_, err := i.reader(ctx).Read(make([]byte, 1))
			if took := time.Since(begin); !kept && (err != errInputCut || took != absentAfter) || kept && (!errors.Is(err, context.DeadlineExceeded) || took != time.Hour) {
				t.Errorf("kept %v: it ends with %v after %v", kept, err, took)
			}
		})
	}
}

func TestAnotherReaderReplacesTheFirst(t *testing.T) {
	t.Parallel()
	f := newFeed()
	read := func(as Reader, position int64) (Reading, error) {
		return f.read(t.Context(), as, position, time.Now().Add(time.Minute))
	}
	replaced := make(chan error, 1)
	go func() {
		_, err := read(Reader{}, 0)
		replaced <- err
	}()
	if r, err := read(Reader{Intent: Join, ID: "b"}, 0); err != nil || r.Position != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := <-replaced; fault.CodeOf(err) != fault.OutOfRange {
		t.Errorf("the first one gets %v", err)
	}
	if err := f.write(t.Context(), Stdout, []byte("text"), 10); err != nil {
		t.Fatal(err)
	}
	if r, err := read(Reader{ID: "b"}, 0); err != nil || r.Position != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	f.lose() // nobody was there
	if r, err := read(Reader{Intent: Join, ID: "c"}, 0); err != nil || r.Position != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := f.write(t.Context(), Stdout, []byte("more"), 20); err != nil {
		t.Fatal(err)
	}
	if r, err := read(Reader{ID: "c"}, 4); err != nil || len(r.Pieces) != 1 || string(r.Pieces[0].Data) != "more" {
		t.Errorf("%+v, %v", r, err)
	}
}
