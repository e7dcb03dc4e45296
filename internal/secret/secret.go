// Package secret encrypts ("seals") values, so that the contents of the database are useless without the installation's
// key. It uses age (filippo.io/age): an X25519 identity is the key, and every value is encrypted to its recipient under
// a new file key (envelope encryption).
package secret

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Sealer seals and opens values under one key. It is safe for concurrent use.
type Sealer struct{ identity *age.X25519Identity }

// NewKey returns a new key for [NewSealer].
func NewKey() (string, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// NewSealer returns a Sealer for a key made by [NewKey]. A malformed key is a [fault.Invalid] that does not repeat the
// key.
func NewSealer(key string) (*Sealer, error) {
	id, err := age.ParseX25519Identity(strings.TrimSpace(key))
	if err != nil {
		return nil, fault.New(fault.Invalid, "the secret key is not an age identity",
			`set ARBE_SECRET_KEY to the text that begins with "AGE-SECRET-KEY-1", or remove it to have one created`)
	}
	return &Sealer{identity: id}, nil
}

// Derive derives 32 secret bytes for a purpose. For one key they are always the same, and they reveal nothing about
// those for another purpose.
func (s *Sealer) Derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, []byte(s.identity.String()), nil, "arbe: "+purpose, 32)
	if err != nil {
		panic(err) // cannot happen for this length
	}
	return key
}

// Seal encrypts value.
func (s *Sealer) Seal(value []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, s.identity.Recipient())
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(value); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Open decrypts what [Sealer.Seal] returned. A value that was sealed under another key is a [fault.Precondition].
func (s *Sealer) Open(sealed []byte) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), s.identity)
	if err == nil {
		var value []byte
		if value, err = io.ReadAll(r); err == nil {
			return value, nil
		}
	}
	return nil, fault.New(fault.Precondition, "a sealed value cannot be opened with this key",
		"set ARBE_SECRET_KEY to the key this database was set up with").Because(err)
}
