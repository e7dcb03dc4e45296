package db

import (
	"crypto/sha256"
	"encoding/base32"
)

// IDFor returns the real id for an ID that a caller in a house chose to make retries harmless. Callers cannot choose
// real ids, because all houses share them: a caller could find out whether another house has a certain id, or prevent
// it from getting one. The id has 100 bits, so that nobody finds an ID that leads to a known id. It is longer than the
// ids that the database generates.
func IDFor(house, word string) string {
	hash := sha256.Sum256([]byte(house + "\x00" + word))
	return shortIDs.EncodeToString(hash[:])[:20]
}

// shortIDs has the alphabet of generate_short_id, so that these ids look like generated ones.
var shortIDs = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
