package door

import (
	"net/http"
	"strconv"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

// write appends to a stream, closes it, or both.
func (d *Door) write(w http.ResponseWriter, r request) error {
	if id := r.URL.Query().Get("whole"); id != "" && r.run != 0 && d.Dispatcher != nil {
		return d.keepWhole(w, r, id)
	}
	write, err := conditions(r.Header)
	if err != nil {
		return err
	}
	if r.thread && write.Close {
		return threadsOwn("closed", "end what runs in the thread, or delete the thread")
	}
	body, lease, err := d.content(w, r, maxBody)
	if err != nil {
		return err
	}
	defer lease.Release()
	literal, err := r.fill(&write, body)
	if err != nil {
		return d.refusalOf(w, r, write, err)
	}
	if r.thread {
		write.ContentType = "application/json"
	}
	done, err := d.append(r, write, literal)
	if err != nil {
		return err
	}
	return answerWrite(w, write, done)
}

// fill reads the content of a write from the body of a request.
func (r request) fill(write *stream.Write, body []byte) (literal []bool, err error) {
	if len(body) == 0 {
		if !write.Close {
			err = fault.New(fault.Invalid, "the body is empty", "send what to append, or "+headerClosed+": true to close the stream")
		}
		return nil, err
	}
	if write.ContentType == "" && !r.thread {
		return nil, fault.New(fault.Invalid, "the body has no Content-Type", "send the content type of the stream")
	}
	if write.Content, literal, err = r.drafts(write.ContentType, body); err == nil && len(write.Content) == 0 {
		err = fault.New(fault.Invalid, "the body is an empty array", "send at least one message")
	}
	return literal, err
}

// conditions returns the conditions of a write.
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

// refusalOf returns the error for a write of invalid content. If the stream's state also forbids the write, that error
// comes first.
func (d *Door) refusalOf(w http.ResponseWriter, r request, write stream.Write, unusable error) error {
	s, err := d.Log.Describe(r.Context(), r.ref)
	switch {
	case err != nil:
		return err
	case s.Closed:
		return answerWrite(w, write, stream.Written{Outcome: stream.Closed, Stream: s})
	case write.ContentType != "" && stream.MediaType(write.ContentType) != stream.MediaType(s.ContentType):
		return answerWrite(w, write, stream.Written{Outcome: stream.OtherContent, Stream: s})
	}
	return unusable
}

func answerWrite(w http.ResponseWriter, write stream.Write, done stream.Written) error {
	h := w.Header()
	if p := done.Producer; p != nil && done.Outcome != stream.Closed {
		h.Set(headerEpoch, strconv.FormatInt(p.Epoch, 10))
		if done.Outcome != stream.Fenced {
			h.Set(headerProducerSeq, strconv.FormatInt(p.Seq, 10))
		}
	}
	switch done.Outcome {
	case stream.Accepted, stream.Duplicate:
		setStreamHeaders(h, done.Stream)
		w.WriteHeader(writeStatus(write, done))
		return nil
	case stream.Closed:
		setStreamHeaders(h, done.Stream)
		return fault.Newf(fault.Precondition, "write to another stream", "stream %s is closed", done.Stream.Name)
	case stream.OtherContent:
		return fault.Newf(fault.Precondition, "send the stream's content type", "the stream holds %s and not %s", done.Stream.ContentType, write.ContentType)
	case stream.Fenced:
		return fault.Newf(fault.Forbidden, "stop, or start with a higher epoch", "another producer %s has started epoch %d", write.Producer.Name, done.Producer.Epoch)
	case stream.NotFromStart:
		return fault.New(fault.Invalid, "a new epoch must begin with "+headerProducerSeq+": 0", "number the producer's appends from 0")
	case stream.Gap:
		expected := int64(0)
		if done.Producer != nil {
			expected = done.Producer.Seq + 1
		}
		h.Set(headerSeqExpected, strconv.FormatInt(expected, 10))
		h.Set(headerSeqReceived, strconv.FormatInt(write.Producer.Seq, 10))
		return fault.Newf(fault.Aborted, "send the missing appends first", "append %d of producer %s is expected, not %d", expected, write.Producer.Name, write.Producer.Seq)
	}
	return fault.New(fault.Aborted, headerSeq+": an earlier append has this value or a greater one", "read the appended entries, and continue with a greater value")
}

// writeStatus returns the status of a write that is in the log. By 200 instead of 204, a producer knows that the append
// was not a duplicate.
func writeStatus(write stream.Write, done stream.Written) int {
	if done.Outcome == stream.Accepted && write.Producer != nil && len(write.Content) > 0 {
		return http.StatusOK
	}
	return http.StatusNoContent
}
