package door

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/stream"
)

// The headers of the protocol.
const (
	headerNext         = "Stream-Next-Offset"
	headerUpToDate     = "Stream-Up-To-Date"
	headerClosed       = "Stream-Closed"
	headerCursor       = "Stream-Cursor"
	headerSeq          = "Stream-Seq"
	headerTTL          = "Stream-TTL"
	headerExpiresAt    = "Stream-Expires-At"
	headerForkedFrom   = "Stream-Forked-From"
	headerForkOffset   = "Stream-Fork-Offset"
	headerForkSub      = "Stream-Fork-Sub-Offset"
	headerEncoding     = "Stream-SSE-Data-Encoding"
	headerProducer     = "Producer-Id"
	headerEpoch        = "Producer-Epoch"
	headerProducerSeq  = "Producer-Seq"
	headerSeqExpected  = "Producer-Expected-Seq"
	headerSeqReceived  = "Producer-Received-Seq"
	headerToken        = "Arbe-Stream-Token" // ours: another token of the run whose token the request carries
	methods            = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
	maxTTL             = 100 * 365 * 24 * time.Hour
	maxProducerCounter = 1<<53 - 1 // a greater one would not be exact in JavaScript
)

// prepare sets the headers of every response.
//
// No browser may render a response, because the door returns what someone wrote, with the content type that they chose,
// from the origin of the web app. If a browser does, the content must not run in an origin of ours. Pages of all sites
// may use the door with a bearer token that they have, because no response depends on a cookie, and none allows
// credentials.
func prepare(h http.Header) {
	for _, c := range common {
		h[c.name] = c.value // shared but never changed, because setting a header replaces the slice
	}
}

// preflight sets the headers that say what pages of other sites may send.
func preflight(h http.Header) {
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Access-Control-Allow-Headers", allowedHeaders)
}

// common are the headers of every response.
var common = func() (headers []struct {
	name  string
	value []string
}) {
	for name, value := range map[string]string{
		"Content-Security-Policy":       "sandbox; default-src 'none'; frame-ancestors 'none'",
		"Content-Disposition":           "attachment",
		"X-Content-Type-Options":        "nosniff",
		"Cross-Origin-Resource-Policy":  "same-origin", // does not affect requests that use CORS
		"Referrer-Policy":               "no-referrer",
		"Access-Control-Allow-Origin":   "*",
		"Access-Control-Expose-Headers": exposedHeaders,
		// Operations whose responses may be cached override this. Vary applies to all of them.
		"Cache-Control": noStore,
		"Vary":          "Accept, Authorization, " + houseHeader,
	} {
		headers = append(headers, struct {
			name  string
			value []string
		}{http.CanonicalHeaderKey(name), []string{value}})
	}
	return headers
}()

// noStore forbids caches to store a response.
const noStore = "private, no-store"

// The headers that pages of other sites may send and read.
var (
	allowedHeaders = strings.Join([]string{
		"Accept", "Authorization", "Content-Type", "If-None-Match", houseHeader, headerSeq, headerTTL, headerExpiresAt, headerClosed,
		headerProducer, headerEpoch, headerProducerSeq, headerForkedFrom, headerForkOffset, headerForkSub,
	}, ", ")
	exposedHeaders = strings.Join([]string{
		headerNext, headerCursor, headerUpToDate, headerClosed, headerTTL, headerExpiresAt, headerEncoding,
		headerEpoch, headerProducerSeq, headerSeqExpected, headerSeqReceived, "ETag", "Location", "Content-Type", "Retry-After",
	}, ", ")
)

// setStreamHeaders sets the headers for the end of a stream and whether it is closed.
func setStreamHeaders(h http.Header, s stream.Stream) {
	h.Set(headerNext, stream.Offset(s.Tail))
	if s.Closed {
		h.Set(headerClosed, "true")
	}
}

// closes reports whether a request closes its stream. Any value other than true is ignored.
func closes(h http.Header) bool {
	return strings.EqualFold(strings.TrimSpace(h.Get(headerClosed)), "true")
}

var plainNumber = lazyregexp.New(`^(0|[1-9][0-9]*)$`)

// number returns a header's whole number up to most, without sign and leading zeros.
func number(h http.Header, name string, most int64) (n int64, given bool, err error) {
	values := h.Values(name)
	if len(values) == 0 {
		return 0, false, nil
	}
	n, failed := strconv.ParseInt(values[0], 10, 64)
	if len(values) > 1 || !plainNumber.MatchString(values[0]) || failed != nil || n > most {
		return 0, true, badHeader(name, "a whole number from 0 to "+strconv.FormatInt(most, 10))
	}
	return n, true, nil
}

// lifetime returns how long a requested stream lives.
func lifetime(h http.Header) (ttl *time.Duration, expires time.Time, err error) {
	seconds, given, err := number(h, headerTTL, int64(maxTTL/time.Second))
	if err != nil {
		return nil, time.Time{}, err
	}
	at := h.Get(headerExpiresAt)
	if given {
		if at != "" {
			return nil, time.Time{}, fault.New(fault.Invalid, headerTTL+" and "+headerExpiresAt+" exclude each other", "send one of them")
		}
		d := time.Duration(seconds) * time.Second
		return &d, time.Time{}, nil
	}
	if len(h.Values(headerExpiresAt)) > 0 {
		expires, err := time.Parse(time.RFC3339, at)
		if err != nil || expires.Year() < 1970 {
			return nil, time.Time{}, badHeader(headerExpiresAt, "a time such as 2030-01-02T15:04:05Z")
		}
		return nil, expires.Truncate(time.Microsecond), nil // the precision of the database
	}
	return nil, time.Time{}, nil
}

// producerOf returns the producer of a request, or nil.
func producerOf(h http.Header) (*stream.Producer, error) {
	_, named := h[headerProducer]
	epoch, epochGiven, err := digits(h, headerEpoch)
	if err != nil {
		return nil, err
	}
	seq, seqGiven, err := digits(h, headerProducerSeq)
	if err != nil {
		return nil, err
	}
	name := h.Get(headerProducer)
	switch {
	case !named && !epochGiven && !seqGiven:
		return nil, nil
	case !named || !epochGiven || !seqGiven:
		return nil, fault.New(fault.Invalid, headerProducer+", "+headerEpoch+" and "+headerProducerSeq+" belong together", "send all of them, or none")
	case name == "" || len(name) > maxName || !utf8.ValidString(name):
		return nil, badHeader(headerProducer, "a name of up to 255 bytes")
	}
	return &stream.Producer{Name: name, Epoch: epoch, Seq: seq}, nil
}

var someDigits = lazyregexp.New(`^[0-9]{1,18}$`)

// digits returns a counter of a producer.
func digits(h http.Header, name string) (n int64, given bool, err error) {
	text := h.Get(name)
	if _, given = h[name]; !given {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(text, 10, 64)
	if err != nil || !someDigits.MatchString(text) || n > maxProducerCounter {
		return 0, true, badHeader(name, "a whole number from 0 to 2^53-1")
	}
	return n, true, nil
}

// seqOf returns the Stream-Seq of a request.
func seqOf(h http.Header) (string, error) {
	seq := h.Get(headerSeq)
	if len(seq) > maxName || !utf8.ValidString(seq) {
		return "", badHeader(headerSeq, "a text of up to 255 bytes")
	}
	return seq, nil
}

// contentType returns the Content-Type of a request as it was sent.
func contentType(h http.Header) (string, error) {
	kind := strings.TrimSpace(h.Get("Content-Type"))
	if len(kind) > maxName || kind != "" && !strings.Contains(kind, "/") || !utf8.ValidString(kind) {
		return "", badHeader("Content-Type", "a media type such as application/json")
	}
	return kind, nil
}

func badHeader(name, want string) error {
	return fault.Newf(fault.Invalid, "send "+want+", or leave it out", "%s: it is not %s", name, want)
}
