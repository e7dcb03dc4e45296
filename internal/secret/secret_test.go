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
	return sealerOf(t, "\n"+key(t)+" \n") // with the white space that a file or an editor adds
}

func key(t *testing.T) string {
	t.Helper()
	key, err := secret.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sealerOf(t *testing.T, keys string) *secret.Sealer {
	t.Helper()
	s, err := secret.NewSealer(keys, nil)
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
	t.Run("reveals nothing of the value, nor that two values are equal", func(t *testing.T) {
		one, two := seal(t, s, value), seal(t, s, value)
		if bytes.Contains(one, value) || bytes.Equal(one, two) {
			t.Error("the sealed value reveals something")
		}
	})
	t.Run("opens no value that another key sealed or that was changed", func(t *testing.T) {
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
	t.Run("with several keys seals under the first and opens all", func(t *testing.T) {
		one, two := key(t), key(t)
		old, both, alone := sealerOf(t, one), sealerOf(t, two+"\n"+one), sealerOf(t, two)
		before := seal(t, old, value)
		if got, err := both.Open(before); err != nil || !bytes.Equal(got, value) {
			t.Errorf("what the old key sealed opens as %q: %v", got, err)
		}
		again, changed, err := both.Reseal(before)
		if got, opened := alone.Open(again); err != nil || opened != nil || !changed || !bytes.Equal(got, value) {
			t.Errorf("sealed again: changed %v, opens as %q: %v, %v", changed, got, err, opened)
		}
		if same, changed, err := both.Reseal(again); err != nil || changed || !bytes.Equal(same, again) {
			t.Errorf("sealed again twice: changed %v: %v", changed, err)
		}
	})
	t.Run("refuses a malformed key without repeating it", func(t *testing.T) {
		for _, key := range []string{"", "hunter2", "AGE-SECRET-KEY-1HUNTER2", key(t) + " AGE-SECRET-KEY-1HUNTER2", "nosuchkms://hunter2"} {
			_, err := secret.NewSealer(key, nil)
			if fault.CodeOf(err) != fault.Invalid || strings.Contains(strings.ToLower(err.Error()), "hunter2") {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}
