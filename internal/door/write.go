package door

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// bodyWithin is how long a client may take to send a body.
const bodyWithin = time.Minute

// content is a request's body.
func content(w http.ResponseWriter, r request) ([]byte, error) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyWithin))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refusal{http.StatusRequestEntityTooLarge, fault.Newf(fault.Exhausted, "append it in parts", "the body has more than %d bytes", maxBody)}
	case err != nil:
		return nil, fault.New(fault.Invalid, "the body ended before it was complete", "send the request again").Because(err)
	}
	return body, nil
}

// write appends to a stream, closes it, or both in one.
func (d *Door) write(w http.ResponseWriter, r request) error {
	write, err := conditions(r.Header)
	if err != nil {
		return err
	}
	if r.thread && write.Close {
		return threadsOwn("closed", "end what runs in the thread, or delete it")
	}
	body, err := content(w, r)
	if err != nil {
		return err
	}
	switch {
	case len(body) > 0:
		if write.ContentType == "" && !r.thread {
			return fault.New(fault.Invalid, "the body has no Content-Type", "send the stream's")
		}
		if write.Content, err = r.drafts(write.ContentType, body); err == nil && len(write.Content) == 0 {
			err = fault.New(fault.Invalid, "the body is an empty array", "send at least one message")
		}
	case !write.Close:
		err = fault.New(fault.Invalid, "the body is empty", "send what to append, or "+headerClosed+": true to close the stream")
	}
	if err != nil {
		return d.blame(w, r, write, err)
	}
	if r.thread {
		write.ContentType = "application/json"
	}
	done, err := d.Log.Write(r.Context(), r.ref, write)
	if err != nil {
		return err
	}
	return answer(w, write, done)
}

// conditions are what a write depends on.
func conditions(h http.Header) (write stream.Write, err error) {
	if write.Producer, err = producerOf(h); err != nil {
		return write, err
	}
	if write.Seq, err = seqOf(h); err != nil {
		return write, err
	}
	write.Close = closes(h)
	write.ContentType, err = contentType(h)
	return write, err
}

// blame finds what a write of unusable content is to be told: what the stream says against it comes first.
func (d *Door) blame(w http.ResponseWriter, r request, write stream.Write, unusable error) error {
	s, err := d.Log.Describe(r.Context(), r.ref)
	switch {
	case err != nil:
		return err
	case s.Closed:
		return answer(w, write, stream.Written{Verdict: stream.Closed, Stream: s})
	case write.ContentType != "" && stream.MediaType(write.ContentType) != stream.MediaType(s.ContentType):
		return answer(w, write, stream.Written{Verdict: stream.OtherContent, Stream: s})
	}
	return unusable
}

// answer tells what became of a write.
func answer(w http.ResponseWriter, write stream.Write, done stream.Written) error {
	h := w.Header()
	if p := done.Producer; p != nil && done.Verdict != stream.Closed {
		h.Set(headerEpoch, strconv.FormatInt(p.Epoch, 10))
		if done.Verdict != stream.Fenced {
			h.Set(headerProducerSeq, strconv.FormatInt(p.Seq, 10))
		}
	}
	switch done.Verdict {
	case stream.Accepted, stream.Duplicate:
		tell(h, done.Stream)
		if done.Verdict == stream.Accepted && write.Producer != nil && len(write.Content) > 0 {
			w.WriteHeader(http.StatusOK)
		} else {
			w.WriteHeader(http.StatusNoContent)
		}
		return nil
	case stream.Closed:
		tell(h, done.Stream)
		return fault.Newf(fault.Precondition, "write to another stream", "stream %s is closed", done.Stream.Name)
	case stream.OtherContent:
		return fault.Newf(fault.Precondition, "send the stream's content type", "the stream holds %s, and no %s", done.Stream.ContentType, write.ContentType)
	case stream.Fenced:
		return fault.Newf(fault.Forbidden, "stop, or begin a higher epoch", "another producer %s has begun epoch %d", write.Producer.Name, done.Producer.Epoch)
	case stream.NotFromStart:
		return fault.New(fault.Invalid, "a new epoch begins with "+headerProducerSeq+": 0", "number its appends from 0")
	case stream.Gap:
		expected := int64(0)
		if done.Producer != nil {
			expected = done.Producer.Seq + 1
		}
		h.Set(headerSeqExpected, strconv.FormatInt(expected, 10))
		h.Set(headerSeqReceived, strconv.FormatInt(write.Producer.Seq, 10))
		return fault.Newf(fault.Aborted, "send the appends before it first", "append %d of producer %s comes next, not %d", expected, write.Producer.Name, write.Producer.Seq)
	}
	return fault.New(fault.Aborted, headerSeq+": an append with this or a greater one was there before", "look at what was appended, and count on")
}
