package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/sha256"
)

func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// vapidKey derives the key with which the server signs (RFC 8292). Nearly every seed is itself a valid key.
func vapidKey(seed []byte) *ecdh.PrivateKey {
	for {
		if key, err := ecdh.P256().NewPrivateKey(seed); err == nil {
			return key
		}
		sum := sha256.Sum256(seed)
		seed = sum[:]
	}
}
