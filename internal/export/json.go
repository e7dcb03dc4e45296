package export

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The types here are the JSON of threads, entries and agents: the contract's messages with the contract's names, numbers as
// numbers, times as RFC 3339 text. A field that is not set is left out, unless its comment says otherwise.

// Agent is a person or a bot.
type Agent struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Runtime string `json:"runtime,omitempty"`
	Name    string `json:"name"`
	Handle  string `json:"handle,omitempty"` // of a bot, without the @
}

// ViewAgent returns the view of an agent.
func ViewAgent(a *arbev1.Agent) Agent {
	return Agent{ID: a.GetId(), Kind: a.GetKind(), Runtime: a.GetRuntime(), Name: a.GetName(), Handle: a.GetHandle()}
}

// Thread is a thread.
type Thread struct {
	ID             string     `json:"id"`
	HouseID        string     `json:"house_id"`
	StreamID       string     `json:"stream_id"`
	Name           string     `json:"name"` // always present; empty is untitled
	Status         string     `json:"status"`
	Parent         parent     `json:"parent"`
	AgentID        string     `json:"agent_id,omitempty"`
	AnsweringID    string     `json:"answering_agent_id,omitempty"`
	Model          string     `json:"model,omitempty"`
	Think          string     `json:"think,omitempty"`
	EnvironmentID  string     `json:"environment_id,omitempty"`
	SandboxID      string     `json:"sandbox_id,omitempty"`
	Tags           []string   `json:"tags,omitempty"`
	Tail           int64      `json:"tail"` // always present; 0 is an empty log
	PinnedAt       *time.Time `json:"pinned_at,omitempty"`
	ForkedFrom     *origin    `json:"forked_from,omitempty"`
	Running        *work      `json:"running,omitempty"`
	OpenApprovals  int32      `json:"open_approvals"` // always present
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	LastActivityAt time.Time  `json:"last_activity_at"`
}

// origin has no thread_id once that thread was deleted.
type origin struct {
	ThreadID string `json:"thread_id,omitempty"`
	Seq      int64  `json:"seq"`
}

// work has either a command or a turn with its bot.
type work struct {
	CommandID string    `json:"command_id,omitempty"`
	TurnID    string    `json:"turn_id,omitempty"`
	AgentID   string    `json:"agent_id,omitempty"`
	AgentName string    `json:"agent_name,omitempty"`
	RunEpoch  int64     `json:"run_epoch,omitempty"`
	Since     time.Time `json:"since"`
}

type parent struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// ViewThread returns the view of a thread.
func ViewThread(t *arbev1.Thread) Thread {
	view := Thread{
		ID: t.GetId(), HouseID: t.GetHouseId(), StreamID: t.GetStreamId(), Name: t.GetName(), Status: arbev1.Word(t.GetStatus()),
		Parent:  parent{Kind: t.GetParent().GetKind(), ID: t.GetParent().GetId()},
		AgentID: t.GetAgentId(), AnsweringID: t.GetAnsweringAgentId(), Model: t.GetModel(), Think: t.GetThink(), EnvironmentID: t.GetEnvironmentId(), SandboxID: t.GetSandboxId(), Tags: t.GetTags(),
		Tail: t.GetTail(), PinnedAt: Optional(t.GetPinnedAt()), CreatedAt: t.GetCreatedAt().AsTime(),
		UpdatedAt: t.GetUpdatedAt().AsTime(), LastActivityAt: t.GetLastActivityAt().AsTime(),
		OpenApprovals: t.GetOpenApprovals(),
	}
	if from := t.GetForkedFrom(); from != nil {
		view.ForkedFrom = &origin{from.GetThreadId(), from.GetSeq()}
	}
	if r := t.GetRunning(); r != nil {
		view.Running = &work{r.GetCommandId(), r.GetTurnId(), r.GetAgentId(), r.GetAgentName(), r.GetRunEpoch(), r.GetSince().AsTime()}
	}
	return view
}

// Optional returns a time, or nil if it is not set.
func Optional(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := ts.AsTime()
	return &t
}

// Entry is an entry of a log. It always has all its fields except state; author_agent_id is null for entries of arbe itself.
type Entry struct {
	Seq           int64           `json:"seq"`
	ID            string          `json:"id"`
	Type          string          `json:"type"`
	AuthorAgentID *string         `json:"author_agent_id"`
	Payload       json.RawMessage `json:"payload"`
	TS            time.Time       `json:"ts"`
	State         *state          `json:"state,omitempty"`
}

// state is the present state of a message: its edits, deletion and reactions.
type state struct {
	Text    string `json:"text,omitempty"`
	Edits   int32  `json:"edits"`
	Deleted bool   `json:"deleted"`
	// ChangedAt is when the message was edited or deleted, or nil if it was not.
	ChangedAt *time.Time `json:"changed_at,omitempty"`
	Reactions []reaction `json:"reactions,omitempty"`
}

type reaction struct {
	Emoji    string   `json:"emoji"`
	AgentIDs []string `json:"agent_ids"`
}

// ViewEntry returns the view of an entry.
func ViewEntry(e *arbev1.Entry) Entry {
	v := Entry{
		Seq: e.GetSeq(), ID: e.GetId(), Type: e.GetType(), Payload: json.RawMessage(e.GetPayload()), TS: e.GetTs().AsTime(),
	}
	if author := e.GetAuthorAgentId(); author != "" {
		v.AuthorAgentID = &author
	}
	if became := e.GetState(); became != nil {
		v.State = &state{Text: became.GetText(), Edits: became.GetEdits(), Deleted: became.GetDeleted(), ChangedAt: Optional(became.GetChangedAt())}
		for _, r := range became.GetReactions() {
			v.State.Reactions = append(v.State.Reactions, reaction{r.GetEmoji(), r.GetAgentIds()})
		}
	}
	return v
}
