package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// maxBody is the largest size of a request, in bytes. Providers do not accept more.
const maxBody = 32 << 20

// bodyWait is how long a request waits for memory.
const bodyWait = 20 * time.Second

// read reads the body of a request, for which it holds memory until release is called.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, pass Pass) (body []byte, release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	size := r.ContentLength
	if size > maxBody {
		return nil, nil, tooLarge()
	} else if size < 0 {
		size = maxBody
	}
	lease, err := g.Memory.Take(ctx, pass.House, size)
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "too many large requests are in progress", "try again in a moment").WithReason(fault.Busy).Because(err)
	}
	var text bytes.Buffer
	text.Grow(int(min(max(r.ContentLength, 0), maxBody)) + bytes.MinRead)
	if _, err = text.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		lease.Release()
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			err = tooLarge()
		} else {
			err = fault.New(fault.Invalid, "the request could not be read to its end", "send it again").Because(err)
		}
		return nil, nil, err
	}
	lease.Shrink(int64(text.Len())) // not all requests declare their length
	return text.Bytes(), lease.Release, nil
}

func tooLarge() error {
	return refusal{http.StatusRequestEntityTooLarge, fault.Newf(fault.Exhausted, "send less", "a request has at most %d MiB", maxBody>>20).WithReason(fault.TooLarge)}
}
