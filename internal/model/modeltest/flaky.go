package modeltest

import "strconv"

// A Failure is one way in which a provider fails for a while.
type Failure func(*Request) Reply

// The transient failures, in the form of the request's dialect.
var (
	// Overloaded: the request is refused with 529, or 503 where the dialect has no other status.
	Overloaded Failure = func(r *Request) Reply { return Refused(r.Dialect, 529) }
	// Broken: the request is refused with 500.
	Broken Failure = func(r *Request) Reply { return Refused(r.Dialect, 500) }
	// OverloadedWithin: an answer that has begun ends with an error that says so.
	OverloadedWithin Failure = func(r *Request) Reply {
		return Reply{Text: HalfAnswer, Fail: &Error{Type: overloaded[r.Dialect], Code: "server_error", Message: "Overloaded"}}
	}
	// CutWithin: the connection is closed within the answer. CutOff: it is closed before the response.
	CutWithin Failure = func(*Request) Reply { return Reply{Text: HalfAnswer, Cut: 3} }
	CutOff    Failure = func(*Request) Reply { return Reply{Cut: -1} }
	// Silent: the connection is accepted, and nothing is sent. SilentWithin: an answer begins and stalls.
	Silent       Failure = func(*Request) Reply { return Reply{Text: HalfAnswer, Hold: true, HoldHeaders: true} }
	SilentWithin Failure = func(*Request) Reply { return Reply{Text: HalfAnswer, Hold: true} }
)

// Limited refuses the request with 429. after is the Retry-After in seconds; 0 leaves that header out.
func Limited(after float64) Failure {
	return func(r *Request) Reply {
		reply := Refused(r.Dialect, 429)
		if after > 0 {
			reply.Header = map[string]string{"Retry-After": strconv.FormatFloat(after, 'f', -1, 64)}
		}
		return reply
	}
}

// HalfAnswer is the beginning of the answers that are never completed.
const HalfAnswer = "half of an answer that is never completed"

// Flaky is the script of a server that fails in these ways, one by one for each model, and then answers as then does. A nil
// then is [ByName].
func Flaky(then Script, failures ...Failure) Script {
	if then == nil {
		then = ByName
	}
	return func(r *Request) Reply {
		if r.Seen < len(failures) {
			return failures[r.Seen](r)
		}
		return then(r)
	}
}

// overloaded is each dialect's error type for an overload within an answer.
var overloaded = map[Dialect]string{Messages: "overloaded_error", Chat: "server_error", Responses: "server_error", Gemini: "UNAVAILABLE"}
