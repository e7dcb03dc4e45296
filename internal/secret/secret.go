// Package secret keeps values that must not be readable in the database, among them the secrets of houses, and redacts
// these in everything that leaves the server.
//
// Values are encrypted in an envelope of two layers. The outer key is the root key, which the operator keeps outside
// the database (a file, an environment variable or a KMS; see [Root]). It seals only small values: those of the
// installation itself ([Sealer]), and one data key per house. The data key encrypts the values of its house, so that a
// root key can be replaced without touching them, and a KMS is asked once per house instead of once per value.
//
// Two libraries do the cryptography. Root keys are age identities (filippo.io/age), because a person handles them and
// their text form is made for that. Data keys are keysets of Tink (tink-go), because its AEAD binds a ciphertext to
// associated data, which age cannot: a value that somebody with access to the database moves to another house, or
// to another name, does not open.
//
// The rule to remember: [Secrets.Value] is for the server's own use. No door returns its result.
package secret

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Root is a key outside the database. It encrypts values of at most 4096 bytes, which is the limit of common KMS.
// Implementations limit how long a call takes, and are safe for concurrent use.
type Root interface {
	Wrap(value []byte) ([]byte, error)
	// Unwrap decrypts what Wrap returned. The error wraps [ErrOtherKey] if another key encrypted it.
	Unwrap(wrapped []byte) ([]byte, error)
}

// ErrOtherKey reports that a value was sealed under another key.
var ErrOtherKey = errors.New("sealed under another key")

// OpenRoot opens the root key at an address such as "awskms://…".
type OpenRoot func(address string) (Root, error)

// Marks begin sealed values, so that a key is tried only with values of its kind: age's own mark, and one for a KMS.
var (
	ageMark = []byte("age-encryption.org/")
	kmsMark = []byte("arbe-kms/1 ")
)

// kmsRoot is a key in a KMS. The values that it seals begin with its id, which shows whether a value is under this key,
// because some services open what any of their keys sealed.
type kmsRoot struct {
	Root
	id string
}

// Sealer seals and opens the installation's own values under its root keys. It is safe for concurrent use.
type Sealer struct {
	// roots are the keys. The first one seals; all open.
	roots []Root
	seed  []byte
}

// NewKey returns a new key for [NewSealer].
func NewKey() (string, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

var kmsAddress = lazyregexp.New(`^[a-z][a-z0-9+.-]*://`)

// NewSealer returns a Sealer for one or more keys, separated by white space: keys made by [NewKey], or addresses of a
// KMS, which it opens with open (nil: a KMS is refused). The first one seals and all open, so that a key can be
// replaced while servers run; see [Rewrap]. A malformed key is a [fault.Invalid] that does not repeat the key.
func NewSealer(keys string, open OpenRoot) (*Sealer, error) {
	s := &Sealer{}
	for i, key := range strings.Fields(keys) {
		if kmsAddress.MatchString(key) && open != nil {
			kms, err := open(key)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256([]byte(key))
			s.roots = append(s.roots, kmsRoot{kms, hex.EncodeToString(sum[:8])})
			continue
		}
		id, err := age.ParseX25519Identity(key)
		if err != nil {
			return nil, fault.Newf(fault.Invalid, `set ARBE_SECRET_KEY to the text that begins with "AGE-SECRET-KEY-1", or to the address of a KMS, or remove it to have a key created`,
				"the secret key (number %d of ARBE_SECRET_KEY) is not an age identity", i+1)
		}
		s.roots = append(s.roots, ageRoot{id})
	}
	if len(s.roots) == 0 {
		return nil, fault.New(fault.Invalid, "the secret key is empty and not an age identity",
			`set ARBE_SECRET_KEY to the text that begins with "AGE-SECRET-KEY-1", or remove it to have one created`)
	}
	return s, nil
}

// ageRoot is a root key given as text, in a file or a variable.
type ageRoot struct{ identity *age.X25519Identity }

func (r ageRoot) Wrap(value []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, r.identity.Recipient())
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

func (r ageRoot) Unwrap(wrapped []byte) ([]byte, error) {
	plain, err := age.Decrypt(bytes.NewReader(wrapped), r.identity)
	if err == nil {
		var value []byte
		if value, err = io.ReadAll(plain); err == nil {
			return value, nil
		}
	}
	return nil, fmt.Errorf("%w: %v", ErrOtherKey, err) // or the value was changed, which looks the same
}

// Seal encrypts value under the first key.
func (s *Sealer) Seal(value []byte) ([]byte, error) {
	wrapped, err := s.roots[0].Wrap(value)
	if err != nil {
		return nil, unusable(err)
	}
	if first, is := s.roots[0].(kmsRoot); is {
		return slices.Concat(kmsMark, []byte(first.id), []byte("\n"), wrapped), nil
	}
	return wrapped, nil
}

// Open decrypts what [Sealer.Seal] returned under any of the keys. A value that was sealed under a missing key is a
// [fault.Precondition]; a KMS that cannot be asked is a [fault.Unavailable].
func (s *Sealer) Open(sealed []byte) ([]byte, error) {
	value, _, err := s.open(sealed)
	return value, err
}

// open also returns the index of the key under which the value is sealed; -1 for a KMS whose address is no longer among
// the keys.
func (s *Sealer) open(sealed []byte) (value []byte, which int, err error) {
	id, wrapped, ofKMS := unmarked(sealed)
	under := slices.IndexFunc(s.roots, func(r Root) bool { k, is := r.(kmsRoot); return is && k.id == id })
	err = ErrOtherKey
	for _, only := range []bool{true, false} { // the value's own key first, because asking another one costs time
		for i, r := range s.roots {
			if _, is := r.(kmsRoot); is != ofKMS || (i == under) != only && ofKMS || !ofKMS && only {
				continue
			}
			var failed error
			if value, failed = r.Unwrap(wrapped); failed == nil {
				if ofKMS {
					i = under
				}
				return value, i, nil
			}
			// An unreachable KMS is the better reason, because the value may be under its key.
			if errors.Is(err, ErrOtherKey) {
				err = failed
			}
		}
	}
	if !errors.Is(err, ErrOtherKey) {
		return nil, 0, unusable(err)
	}
	return nil, 0, fault.New(fault.Precondition, "a sealed value cannot be opened with this key",
		"set ARBE_SECRET_KEY to the key this database was set up with; while a key is replaced, to the new and the old one").Because(err)
}

// unmarked returns what a root unwraps, and the address of the KMS that it is for, if any.
func unmarked(sealed []byte) (id string, wrapped []byte, ofKMS bool) {
	wrapped, ofKMS = bytes.CutPrefix(sealed, kmsMark)
	if ofKMS {
		mark, rest, _ := bytes.Cut(wrapped, []byte("\n"))
		return string(mark), rest, true
	}
	if !bytes.HasPrefix(sealed, ageMark) {
		return "", nil, false
	}
	return "", wrapped, false
}

// unusable is the error for a root key that cannot be used now.
func unusable(err error) error {
	return fault.New(fault.Unavailable, "the installation's root key cannot be used now",
		"check that the server may use the KMS key of ARBE_SECRET_KEY and reaches it, and try again").Because(err)
}

// Reseal returns a sealed value sealed under the first key. changed is false if it already was.
func (s *Sealer) Reseal(sealed []byte) (resealed []byte, changed bool, err error) {
	value, which, err := s.open(sealed)
	if err != nil || which == 0 {
		return sealed, false, err
	}
	resealed, err = s.Seal(value)
	return resealed, err == nil, err
}

// newSeed returns a value from which [Sealer.Derive] derives. It is stored sealed, so that what is derived stays the
// same when a root key is replaced. Older versions derived from the root key itself. For their installations,
// sealedBefore is a value that they sealed, and the seed is the key that opens it.
func (s *Sealer) newSeed(sealedBefore []byte) ([]byte, error) {
	if sealedBefore != nil {
		_, which, err := s.open(sealedBefore)
		if err != nil {
			return nil, err
		}
		if which >= 0 {
			if r, is := s.roots[which].(ageRoot); is {
				return []byte(r.identity.String()), nil
			}
		}
	}
	seed := make([]byte, 32)
	rand.Read(seed)
	return seed, nil
}

func (s *Sealer) seeded(seed []byte) *Sealer { return &Sealer{roots: s.roots, seed: seed} }

// Derive derives 32 secret bytes for a purpose. With the same seed, the same purpose always gives the same bytes, which
// reveal nothing about those of other purposes. It panics for a Sealer that does not come from [Seed].
func (s *Sealer) Derive(purpose string) []byte {
	if len(s.seed) == 0 {
		panic("secret: this sealer has no seed to derive from")
	}
	key, err := hkdf.Key(sha256.New, s.seed, nil, "arbe: "+purpose, 32)
	if err != nil {
		panic(err) // cannot happen for this length
	}
	return key
}
