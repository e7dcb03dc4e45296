// Package blobtest is the test suite for blob stores. Every store runs it, so that all of them keep the same promises.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

// Houses are the houses whose keys the suite uses. The caller names them, because a store may need them to exist.
type Houses [2]string

// Run checks that a store keeps the promises of [blob.Store]. large is a size in bytes that the store writes in several
// steps.
func Run(t *testing.T, store blob.Store, houses Houses, large int) {
	keys := 0
	newKey := func() blob.Key {
		keys++
		return blob.Key{House: houses[0], ID: fmt.Sprintf("key%d", keys)}
	}
	put := func(t *testing.T, key blob.Key, content []byte) {
		t.Helper()
		// Deliver few bytes at a time, as a network does.
		if err := store.Put(t.Context(), key, iotest.HalfReader(bytes.NewReader(content))); err != nil {
			t.Fatal(fault.From(err).Detail())
		}
	}

	for name, size := range map[string]int{"an empty blob": 0, "a byte": 1, "one step": large, "one step and a byte": large + 1, "several steps": 2*large + 7} {
		t.Run(name+" is read as it was written, from any offset", func(t *testing.T) {
			key, content := newKey(), random(size)
			put(t, key, content)
			for _, offset := range []int{0, 1, size / 2, large - 1, large, large + 1, size - 1, size, size + 1} {
				if offset < 0 {
					continue
				}
				got := read(t, store, key, int64(offset))
				if want := content[min(offset, size):]; !bytes.Equal(got, want) {
					t.Errorf("from %d it reads %d bytes, want %d, or others", offset, len(got), len(want))
				}
			}
		})
	}

	t.Run("reading part of a blob does not change it", func(t *testing.T) {
		key, content := newKey(), random(2*large)
		put(t, key, content)
		r, err := store.Open(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(read(t, store, key, 0), content) {
			t.Error("it has changed")
		}
	})

	t.Run("keys of two houses are independent", func(t *testing.T) {
		ours := newKey()
		theirs := blob.Key{House: houses[1], ID: ours.ID}
		put(t, ours, []byte("ours"))
		put(t, theirs, []byte("theirs"))
		if err := store.Delete(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		if got := read(t, store, ours, 0); string(got) != "ours" {
			t.Errorf("ours reads %q", got)
		}
		isMissing(t, store, theirs)
	})

	t.Run("a key without a blob is not found, and deleting it succeeds", func(t *testing.T) {
		key := newKey()
		isMissing(t, store, key)
		if err := store.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	})

	t.Run("a deleted blob is gone, and deleting it again succeeds", func(t *testing.T) {
		key := newKey()
		put(t, key, random(2*large))
		for range 2 {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		isMissing(t, store, key)
	})

	t.Run("an interrupted upload fails with its reader's error, and Delete removes all of it", func(t *testing.T) {
		broken := errors.New("the connection is cut")
		for _, size := range []int{0, 10, 2*large + 7} {
			key := newKey()
			err := store.Put(t.Context(), key, io.MultiReader(bytes.NewReader(random(size)), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) {
				t.Errorf("after %d bytes it says %v", size, err)
			}
			if err := store.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
			isMissing(t, store, key)
		}
	})

	t.Run("an upload ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sent := 0
		endless := readerFunc(func(p []byte) (int, error) {
			if sent += len(p); sent > 2*large {
				cancel()
			}
			return len(p), nil
		})
		if err := store.Put(ctx, newKey(), endless); !errors.Is(err, context.Canceled) {
			t.Errorf("it says %v", err)
		}
	})

	t.Run("reading ends with its context", func(t *testing.T) {
		key := newKey()
		put(t, key, random(4*large))
		ctx, cancel := context.WithCancel(t.Context())
		r, err := store.Open(ctx, key, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.Copy(io.Discard, r); err == nil {
			t.Error("it did not end")
		}
	})

	t.Run("it is safe for concurrent use", func(t *testing.T) {
		var all sync.WaitGroup
		for range 8 {
			key, content := newKey(), random(large/2)
			all.Go(func() {
				if err := store.Put(t.Context(), key, bytes.NewReader(content)); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(read(t, store, key, 0), content) {
					t.Error("it reads something else")
				}
			})
		}
		all.Wait()
	})

	t.Run("an invalid key is refused", func(t *testing.T) {
		for _, key := range []blob.Key{{}, {House: houses[0]}, {ID: "x"}, {House: "..", ID: "x"}, {House: houses[0], ID: "../x"}, {House: "a/b", ID: "x"}, {House: "a", ID: strings.Repeat("x", 65)}} {
			_, err := store.Open(t.Context(), key, 0)
			for _, err := range []error{err, store.Put(t.Context(), key, strings.NewReader("x")), store.Delete(t.Context(), key)} {
				if fault.CodeOf(err) != fault.Invalid {
					t.Errorf("of %q it says %v", key, err)
				}
			}
		}
	})
}

// read returns a blob from an offset.
func read(t *testing.T, store blob.Store, key blob.Key, offset int64) []byte {
	t.Helper()
	r, err := store.Open(t.Context(), key, offset)
	if err != nil {
		t.Error(fault.From(err).Detail())
		return nil
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Error(fault.From(err).Detail())
	}
	return content
}

// isMissing checks that a key has no blob.
func isMissing(t *testing.T, store blob.Store, key blob.Key) {
	t.Helper()
	r, err := store.Open(t.Context(), key, 0)
	if err == nil {
		_, err = io.ReadAll(r)
		r.Close()
	}
	if fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of a key without a blob it says %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// random returns content without repetitions, so that parts in the wrong order are noticed.
func random(size int) []byte {
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(content)
	return content
}
