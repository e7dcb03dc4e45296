package stream

import (
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Offset returns the position after the entry at seq in the form that clients get. The second half is reserved for
// positions inside an entry, which this server does not hand out. A position has 16 digits with leading zeros, because
// clients compare offsets as strings.
func Offset(seq int64) string {
	text := []byte("0000000000000000_0000000000000000")
	for i := 15; seq > 0; i-- {
		text[i] = byte('0' + seq%10)
		seq /= 10
	}
	return string(text)
}

var offsetForm = lazyregexp.New(`^([0-9]{1,16})_([0-9]{1,16})$`)

// ParseOffset returns the position of the entry before an offset. The error is a [fault.Invalid].
func ParseOffset(text string) (seq int64, err error) {
	m := offsetForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fault.Newf(fault.Invalid, "use -1 for the start, now for the end, or the Stream-Next-Offset of a response", "%.60q is not an offset", text)
	}
	return strconv.ParseInt(m[1], 10, 64) // cannot fail, because 16 digits fit
}
