package stream

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Offset is how clients are told a place in a log: it is behind the entry at seq. The second half is for positions inside of an
// entry, which this server does not hand out.
func Offset(seq int64) string { return fmt.Sprintf("%016d_%016d", seq, 0) }

var offsetForm = regexp.MustCompile(`^([0-9]{1,16})_([0-9]{1,16})$`)

// ParseOffset is the position that an offset is behind. The error is a [fault.Invalid].
func ParseOffset(text string) (seq int64, err error) {
	m := offsetForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fault.Newf(fault.Invalid, "use -1 for the start, now for the end, or the Stream-Next-Offset of a response", "offset: %.60q is not an offset", text)
	}
	seq, err = strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, fault.New(fault.Invalid, "offset: it is too large", "use the Stream-Next-Offset of a response")
	}
	return seq, nil
}
