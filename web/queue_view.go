package web

import (
	"fmt"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// queueView is the queue of messages for the coding agent of a thread.
type queueView struct {
	// Agent is the agent's name. Total is the number of waiting messages, and Messages are the first of them.
	Agent    string
	Total    int
	Messages []queuedMessage
	// Steers reports that the agent can take messages while it works. Otherwise each is its next prompt.
	Steers bool
}

// queuedMessage is a waiting message.
type queuedMessage struct {
	// Path accepts changes to the message Entry at Version. Once makes a retry harmless.
	Path, Entry, Once string
	Seq, Version      int64
	// Text is the text, Line its beginning, and By its author and editor. Clipped means that Text is incomplete.
	Text, Line, By string
	Clipped        bool
	// Later reports that the agent gets it after its current work.
	Later bool
	// First and Last report whether it is the first or the last message. Moving it up or down puts it before the message Up
	// or Down. An empty Up or Down means the end.
	First, Last bool
	Up, Down    string
}

// shownQueueLine limits how much of a message is shown, in characters.
const shownQueueLine = 200

func newQueueView(thread *arbev1.Thread, q *arbev1.ListQueueResponse, nameOf func(agent string) string) queueView {
	v := queueView{Agent: nameOf(thread.AgentId), Total: int(q.GetTotal()), Steers: q.GetSteers()}
	all := q.GetMessages()
	for i, m := range all {
		shown := queuedMessage{
			Path: threadPath(thread.Id) + "/queue", Entry: m.EntryId, Once: newID(), Seq: m.Seq, Version: m.Version,
			Text: m.Text, Line: entry.OneLine(m.Text, shownQueueLine), By: nameOf(m.AuthorAgentId), Clipped: m.Clipped, Later: m.Queue,
			First: i == 0, Last: i == len(all)-1,
		}
		if n := len(m.Attachments); n > 0 {
			shown.Line = entry.OneLine(fmt.Sprintf("[%s] %s", several(n, "file"), m.Text), shownQueueLine)
		}
		if m.EditedByAgentId != "" {
			shown.By += ", edited by " + nameOf(m.EditedByAgentId)
		}
		if i > 0 {
			shown.Up = all[i-1].EntryId
		}
		if i+2 < len(all) {
			shown.Down = all[i+2].EntryId
		}
		v.Messages = append(v.Messages, shown)
	}
	return v
}

// title says how many messages wait, and for whom.
func (v queueView) title() string {
	return "Waiting for " + v.Agent + ": " + several(v.Total, "message")
}

// when says when the agent gets the messages. It returns "" for an agent that takes messages while it works.
func (v queueView) when() string {
	if v.Steers {
		return ""
	}
	return "The next prompt, when the current work is done."
}

// key returns the id of an element of the message. It changes with the message, so that a form never shows an old text.
func (m queuedMessage) key(part string) string {
	return fmt.Sprintf("%s-%d-%d", part, m.Seq, m.Version)
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
