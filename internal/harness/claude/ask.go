package claude

import (
	"encoding/json"

	"github.com/arbe-dev/arbe/internal/harness"
)

// question is the tool with which the model asks people. It needs an answer whatever the permissions are.
const question = "AskUserQuestion"

// ask reads a request of Claude Code. Requests that are not about tools are answered with an error, because Claude Code would
// otherwise wait forever.
func (r *reader) ask(id string, q request) []harness.Event {
	if q.Subtype != "can_use_tool" || id == "" {
		return []harness.Event{{Input: input(object{"type": "control_response", "response": object{"subtype": "error", "request_id": id, "error": "not supported"}})}}
	}
	if len(q.Arguments) == 0 {
		q.Arguments = json.RawMessage("{}")
	}
	to := harness.Ask{ID: id, CallID: q.CallID, Tool: q.Tool, Arguments: q.Arguments, Question: q.Tool == question}
	if !to.Question && len(asked(r.job.Ask)) == 0 { // such as a request to leave plan mode
		return []harness.Event{{Input: r.Answer(to, harness.Answer{Yes: true})}}
	}
	return []harness.Event{{Ask: &to}}
}

// Answer answers a request of Claude Code.
func (r *reader) Answer(to harness.Ask, a harness.Answer) []byte {
	answer := object{"behavior": "allow", "updatedInput": to.Arguments}
	switch {
	case a.Nobody:
		answer = object{"behavior": "deny", "message": "Nobody answered in time. Go on without it, or say what you need."}
	case !a.Yes:
		answer = object{"behavior": "deny", "message": "A person said no to this. Do not try it again; go on without it, or say what you need."}
		if a.Words != "" {
			answer["message"] = answer["message"].(string) + " Their reason: " + a.Words
		}
	case to.Question:
		answer["updatedInput"] = answered(to.Arguments, a.Words)
	}
	return input(object{"type": "control_response", "response": object{"subtype": "success", "request_id": to.ID, "response": answer}})
}

// answered returns the arguments of a question with the same answer to all its parts.
func answered(arguments json.RawMessage, words string) any {
	var fields map[string]json.RawMessage
	var parts struct {
		Questions []struct {
			Question string `json:"question"`
		} `json:"questions"`
	}
	if json.Unmarshal(arguments, &fields) != nil || json.Unmarshal(arguments, &parts) != nil || fields == nil {
		return arguments
	}
	if words == "" {
		words = "Yes."
	}
	answers := map[string]string{}
	for _, p := range parts.Questions {
		answers[p.Question] = words
	}
	fields["answers"], _ = json.Marshal(answers) // strings
	return fields
}
