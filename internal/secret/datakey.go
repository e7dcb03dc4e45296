package secret

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/arbe-dev/arbe/internal/fault"
)

// maxOpenKeys limits the data keys in memory, because an installation may have many houses. At the limit, all are
// dropped and opened again on demand.
const maxOpenKeys = 10_000

// dataKeys opens the data keys of houses and caches them, because a root key may be in a KMS, where each call takes
// tens of milliseconds and costs money. A key is cached under the hash of its sealed form, so that a key that another
// server replaced or resealed is never mistaken for the current one.
type dataKeys struct {
	sealer *Sealer

	mu   sync.Mutex
	held map[[sha256.Size]byte]tink.AEAD
}

// rootAEAD adapts the root key to Tink. It seals the associated data together with the value, because a [Root] knows no
// associated data.
type rootAEAD struct {
	*Sealer
	// which is set to the index of the root key that sealed the last value.
	which *int
}

func (r rootAEAD) Encrypt(value, bound []byte) ([]byte, error) {
	framed := binary.AppendUvarint(nil, uint64(len(bound)))
	return r.Seal(append(append(framed, bound...), value...))
}

func (r rootAEAD) Decrypt(sealed, bound []byte) ([]byte, error) {
	framed, which, err := r.open(sealed)
	if r.which != nil {
		*r.which = which
	}
	if err != nil {
		return nil, err
	}
	n, size := binary.Uvarint(framed)
	if size <= 0 || n > uint64(len(framed)-size) || !bytes.Equal(framed[size:size+int(n)], bound) {
		return nil, errors.New("the data key belongs to another house")
	}
	return framed[size+int(n):], nil
}

// create returns a new data key of a house in its sealed form.
func (k *dataKeys) create(house string) (sealed []byte, key tink.AEAD, err error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, nil, err
	}
	return k.seal(house, handle)
}

func (k *dataKeys) seal(house string, handle *keyset.Handle) (sealed []byte, key tink.AEAD, err error) {
	var out bytes.Buffer
	if err := handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&out), rootAEAD{Sealer: k.sealer}, []byte(house)); err != nil {
		return nil, nil, err
	}
	key, err = aead.New(handle)
	return out.Bytes(), key, err
}

// open returns the data key of a house from its sealed form.
func (k *dataKeys) open(house string, sealed []byte) (tink.AEAD, error) {
	name := sha256.Sum256(append([]byte(house+"\x00"), sealed...))
	k.mu.Lock()
	key := k.held[name]
	k.mu.Unlock()
	if key != nil {
		return key, nil
	}
	handle, _, err := k.read(house, sealed)
	if err != nil {
		return nil, err
	}
	if key, err = aead.New(handle); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil || len(k.held) >= maxOpenKeys {
		k.held = map[[sha256.Size]byte]tink.AEAD{}
	}
	k.held[name] = key
	return key, nil
}

// read also returns which root key the data key is sealed under.
func (k *dataKeys) read(house string, sealed []byte) (handle *keyset.Handle, which int, err error) {
	handle, err = keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(sealed)), rootAEAD{k.sealer, &which}, []byte(house))
	if _, told := errors.AsType[*fault.Error](err); err != nil && !told {
		err = fault.New(fault.Precondition, "the data key of this house cannot be opened", "restore the table house_keys from a backup of this database").Because(err)
	}
	return handle, which, err
}

// resealed returns a data key under the first root key. changed is false if it already was.
func (k *dataKeys) resealed(house string, sealed []byte) (again []byte, changed bool, err error) {
	handle, which, err := k.read(house, sealed)
	if err != nil || which == 0 {
		return sealed, false, err
	}
	again, _, err = k.seal(house, handle)
	return again, err == nil, err
}
