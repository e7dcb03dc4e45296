package modeltest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// ByName is the default script. The model's name selects the reply:
//
//   - fake-answer: repeats the last message of the user.
//   - fake-tool~NAME, fake-tool~A~B: calls the tools NAME, or A and B at once, with the last message of the user as
//     arguments if it is a JSON object, and else with {}. When their results come, it answers with them.
//   - fake-slow: as fake-answer, but each part after the first waits for [Server.Step]. fake-silent: as fake-slow, and
//     the response itself waits as well.
//   - fake-reasoning: thinks, then answers. fake-length: answers, and is ended by the limit.
//   - fake-429, fake-429~SECONDS: refuses the first request, without and with a Retry-After, and answers all others.
//   - fake-500, fake-529, fake-401, fake-404: refuses as a broken, an overloaded server, with a wrong key, or because
//     there is no such model.
//   - fake-overflow, fake-nomoney: refuses because of too much context, or no money.
//   - fake-cut: closes the connection within the answer; fake-cut~1 before its first part, fake-cut~-1 before the response.
//   - fake-fail: reports an overload within the answer. fake-refusal: the model refuses.
//   - fake-garbage: sends no JSON, and fake-garbage~html a page of a web site. fake-endless: never ends.
//
// Any other model behaves like fake-answer, so that names with prices can be used.
func ByName(r *Request) Reply {
	name, argument, _ := strings.Cut(r.Model, "~")
	text := r.Asked()
	switch name {
	case "fake-tool":
		if last := r.Last(); last.Role == "tool" {
			var results []string
			for _, m := range slices.Backward(r.Messages) {
				if m.Role != "tool" {
					break
				}
				results = append([]string{m.Text}, results...)
			}
			return Reply{Text: "The tools said: " + strings.Join(results, ", ")}
		}
		arguments := "{}"
		if json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{") {
			arguments = text
		}
		var calls []Call
		for tool := range strings.SplitSeq(argument, "~") {
			calls = append(calls, Call{Name: tool, Arguments: arguments})
		}
		return Reply{Text: "I will use a tool.", Calls: calls}
	case "fake-slow":
		return Reply{Text: text, Hold: true}
	case "fake-silent":
		return Reply{Text: text, Hold: true, HoldHeaders: true}
	case "fake-reasoning":
		return Reply{Thinking: "Let me think.", Text: text, Usage: &Usage{Input: 100, Output: 50, Reasoning: 30}}
	case "fake-length":
		return Reply{Text: text, Stop: StopLength}
	case "fake-429":
		if r.Seen > 0 {
			return Reply{Text: text}
		}
		reply := Refused(r.Dialect, 429)
		if argument != "" {
			reply.Header = map[string]string{"Retry-After": argument}
		}
		return reply
	case "fake-500":
		return Refused(r.Dialect, 500)
	case "fake-529":
		return Refused(r.Dialect, 529)
	case "fake-401":
		return Refused(r.Dialect, 401)
	case "fake-404":
		return Refused(r.Dialect, 404)
	case "fake-overflow":
		if r.Dialect == Messages {
			return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Message: "prompt is too long: 200000 tokens > 128000 maximum"}}
		}
		return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Code: "context_length_exceeded",
			Message: "This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens. Please reduce the length of the messages."}}
	case "fake-nomoney":
		if r.Dialect == Messages {
			return Reply{Status: 400, Error: Error{Type: "invalid_request_error", Message: "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}
		}
		return Reply{Status: 429, Error: Error{Type: "insufficient_quota", Code: "insufficient_quota", Message: "You exceeded your current quota, please check your plan and billing details."}}
	case "fake-cut":
		reply := Reply{Text: text + " and more", Cut: 2}
		if at, err := strconv.Atoi(argument); err == nil {
			reply.Cut = at
		}
		return reply
	case "fake-fail":
		return Reply{Text: text, Fail: &Error{Type: "overloaded_error", Code: "server_error", Message: "Overloaded"}}
	case "fake-refusal":
		if r.Dialect == Messages {
			return Reply{Stop: StopFilter}
		}
		return Reply{Refusal: "I cannot help with that."}
	case "fake-garbage":
		if argument == "html" {
			return Reply{Garbage: "<html><body>Welcome to nginx!</body></html>", ContentType: "text/html"}
		}
		return Reply{Garbage: "event: message_start\ndata: {]\n\n"}
	case "fake-endless":
		return Reply{Text: "again and ", Endless: true}
	}
	return Reply{Text: text}
}
