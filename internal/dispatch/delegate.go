package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
)

// delegation returns the task that a chat delegates, if its speaker may start work.
func (s Speaker) delegation(ctx context.Context, chat entry.Draft, literal bool) (agent, task string, is bool, err error) {
	text, composed := composedIn(chat)
	if !composed || literal {
		return "", "", false, nil
	}
	if agent, task, is = entry.ParseDelegation(text); !is {
		return "", "", false, nil
	}
	if is, err = s.runs(ctx); err != nil || !is {
		return "", "", false, err
	}
	var c entry.Chat
	if err := json.Unmarshal(chat.Payload, &c); err == nil && len(c.Attachments) > 0 {
		return "", "", false, fault.New(fault.Invalid, "a task cannot have files", "send them with a message, and then name them in the task: its sandbox has them")
	}
	return agent, task, true, entry.CheckComposed(text)
}

// delegate gives a task to a coding agent on behalf of a speaker, and returns the entry that records it. Repeating it with
// the same id returns the first entry.
func (d *Dispatcher) delegate(ctx context.Context, by Speaker, threadID, id, agent, task string) (entry.Entry, error) {
	id = cmp.Or(id, uuid.NewString())
	once := sha256.Sum256([]byte(threadID + "\x00" + id))
	_, err := d.Runs.Spawn(ctx, by.Scope, run.Task{ID: hex.EncodeToString(once[:16]), Parent: threadID, Entry: id, Text: task, Agent: agent})
	if err != nil {
		return entry.Entry{}, err
	}
	return d.log.Get(ctx, stream.Ref{House: by.House, Name: thread.StreamName(threadID)}, id)
}
