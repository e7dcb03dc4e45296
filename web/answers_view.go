package web

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// asSettled is the value of the choice that lets the first message decide which bot answers.
const asSettled = "unsettled"

// answersWords says in a few words what a message means for bots: "arbe answers".
func answersWords(list []*arbev1.Answerer) string {
	by := map[string][]string{}
	for _, a := range list {
		by[a.Action] = append(by[a.Action], clip(a.Name, 40))
	}
	var parts []string
	add := func(action, one, several string) {
		if names := by[action]; len(names) == 1 {
			parts = append(parts, names[0]+" "+one)
		} else if len(names) > 1 {
			parts = append(parts, strings.Join(names[:len(names)-1], ", ")+" and "+names[len(names)-1]+" "+several)
		}
	}
	add("fire", "answers", "answer")
	add("steer", "is at work and reads this", "are at work and read this")
	add("delay", "may answer", "may answer")
	if len(parts) > 0 {
		return strings.Join(parts, " · ")
	}
	if len(list) == 0 {
		return "Nobody is asked, @ to ask a bot"
	}
	first, name := list[0], clip(list[0].Name, 40)
	if first.Reason == string(entry.ReasonCodes) {
		return name + " works on tasks: /delegate @" + first.Handle + " and the task"
	}
	return name + " does not answer. " + first.Explanation
}

// answeringNow returns the current choice of a thread.
func answeringNow(t *arbev1.Thread) string {
	if !t.AnsweringSettled {
		return asSettled
	}
	return t.AnsweringAgentId
}

// unsettledWords describes the choice of a thread for which nobody has chosen.
func unsettledWords(partner string) string {
	if partner != "" {
		return partner
	}
	return "The bot that the first message mentions"
}
