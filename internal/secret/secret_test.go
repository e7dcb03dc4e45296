package secret_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

func sealer(t *testing.T) *secret.Sealer {
	t.Helper()
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := secret.NewSealer("\n" + key + " \n") // as a file or an editor leaves it
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seal(t *testing.T, s *secret.Sealer, value []byte) []byte {
	t.Helper()
	sealed, err := s.Seal(value)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestSealer(t *testing.T) {
	t.Parallel()
	s := sealer(t)
	value := []byte("hunter2, and \x00 bytes")

	t.Run("opens what it sealed", func(t *testing.T) {
		for _, v := range [][]byte{value, {}, bytes.Repeat([]byte("long"), 100_000)} {
			if got, err := s.Open(seal(t, s, v)); err != nil || !bytes.Equal(got, v) {
				t.Errorf("%d bytes come back as %d: %v", len(v), len(got), err)
			}
		}
	})
	t.Run("shows nothing of the value, nor that two are the same", func(t *testing.T) {
		one, two := seal(t, s, value), seal(t, s, value)
		if bytes.Contains(one, value) || bytes.Equal(one, two) {
			t.Error("the sealed value tells something")
		}
	})
	t.Run("opens nothing that another key sealed, or that was changed", func(t *testing.T) {
		sealed := seal(t, s, value)
		flipped := bytes.Clone(sealed)
		flipped[len(flipped)-1] ^= 1
		for what, v := range map[string][]byte{
			"another key's": seal(t, sealer(t), value), "a changed": flipped, "a shortened": sealed[:len(sealed)-1], "an empty": nil,
		} {
			got, err := s.Open(v)
			if fault.CodeOf(err) != fault.Precondition || !strings.Contains(err.Error(), "ARBE_SECRET_KEY") || got != nil {
				t.Errorf("%s value opens as %q: %v", what, got, err)
			}
		}
	})
	t.Run("refuses a malformed key without repeating it", func(t *testing.T) {
		for _, key := range []string{"", "hunter2", "AGE-SECRET-KEY-1HUNTER2"} {
			_, err := secret.NewSealer(key)
			if fault.CodeOf(err) != fault.Invalid || strings.Contains(strings.ToLower(err.Error()), "hunter2") {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}
