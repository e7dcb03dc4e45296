package door

import (
	"bytes"

	"errors"
	"io"
	"net/http"

	"os"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
)

// content reads a request's body of at most limit bytes. The caller must release the lease of its memory. The server
// limits the time.
func (d *Door) content(w http.ResponseWriter, r request, limit int64) (body []byte, lease *httpd.Lease, err error) {
	if r.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	in := http.MaxBytesReader(w, r.Body, limit)
	if n := r.ContentLength; n >= 0 && n <= freeBody { // true of nearly all bodies
		body = make([]byte, n)
		_, err = io.ReadFull(in, body)
		return body, nil, unread(err, limit)
	}
	var read bytes.Buffer
	read.Grow(freeBody + bytes.MinRead)
	// Memory is reserved only when this much has arrived, so that announcing a large body costs nothing.
	if _, err = io.CopyN(&read, in, freeBody); err == nil { // there may be more
		size := r.ContentLength
		if size < 0 {
			size = limit
		}
		if lease, err = d.memory.hold(r.Context(), r.member, 2*size); err != nil { // the content is in memory twice: as a body and as entries
			return nil, nil, err
		}
		read.Grow(int(max(r.ContentLength, 0)))
		_, err = io.Copy(&read, in)
		lease.Shrink(2 * int64(read.Len()))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		lease.Release()
		return nil, nil, unread(err, limit)
	}
	return read.Bytes(), lease, nil
}

// unread returns the error for a body that could not be read; nil if it was read.
func unread(err error, limit int64) error {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return nil
	case large:
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refusal{http.StatusRequestTimeout, fault.New(fault.DeadlineExceeded, "the body arrives too slowly", "send the request again, in parts")}
	}
	return fault.New(fault.Invalid, "the body ended before it was complete", "send the request again").Because(err)
}

func tooLarge(limit int64) *fault.Error {
	return fault.Newf(fault.Exhausted, "append it in parts", "the body has more than %d bytes", limit).WithReason(fault.TooLarge)
}
