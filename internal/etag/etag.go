// Package etag names the versions of things that people edit, so that nobody overwrites a change that they have not seen.
package etag

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Of returns the etag of a version: equal for equal values, and in practice different for others. The values are encoded as JSON
// and must be encodable. Programs compare etags and read nothing from them.
func Of(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // the types of the callers are fixed
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Check returns a [fault.Aborted] if a caller wants to change a version that is not the current one. An empty etag accepts any
// version. what names the thing, as in "this bot".
func Check(wanted, current, what string) error {
	if wanted == "" || wanted == current {
		return nil
	}
	return fault.New(fault.Aborted, fmt.Sprintf("someone else has changed %s since you read it", what), "read it again, and repeat your change").WithReason(fault.Changed)
}
