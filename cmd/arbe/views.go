package main

import (
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The views are the output of --json: the contract's messages with the contract's names, numbers as numbers, times as RFC
// 3339 text. A field that is not set is left out, unless its comment says otherwise.

type agentView struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Runtime string `json:"runtime,omitempty"`
	Name    string `json:"name"`
	Handle  string `json:"handle,omitempty"` // of a bot, without the @
}

func viewAgent(a *arbev1.Agent) agentView {
	return agentView{ID: a.GetId(), Kind: a.GetKind(), Runtime: a.GetRuntime(), Name: a.GetName(), Handle: a.GetHandle()}
}

type houseView struct {
	ID                   string    `json:"id"`
	Name                 string    `json:"name"`
	Role                 string    `json:"role"`
	DefaultEnvironmentID string    `json:"default_environment_id,omitempty"`
	DefaultModel         string    `json:"default_model,omitempty"`
	HouseUSDDay          float64   `json:"house_usd_day,omitempty"` // absent for the default
	PrimaryThreadID      string    `json:"primary_thread_id,omitempty"`
	CreatedAt            time.Time `json:"created_at"`
}

func viewHouse(h *arbev1.House) houseView {
	return houseView{
		ID: h.GetId(), Name: h.GetName(), Role: h.GetRole(), DefaultEnvironmentID: h.GetDefaultEnvironmentId(), DefaultModel: h.GetDefaultModel(),
		HouseUSDDay: h.GetLimits().GetHouseUsdDay(), PrimaryThreadID: h.GetPrimaryThreadId(), CreatedAt: h.GetCreatedAt().AsTime(),
	}
}

type keyView struct {
	ID         string     `json:"id"`
	HouseID    string     `json:"house_id,omitempty"` // absent for a key of all houses
	AgentID    string     `json:"agent_id"`
	Name       string     `json:"name"`
	CreatedBy  string     `json:"created_by,omitempty"` // absent for a bot's key that is older than this record
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

func viewKey(k *arbev1.APIKey) keyView {
	return keyView{
		ID: k.GetId(), HouseID: k.GetHouseId(), AgentID: k.GetAgentId(), Name: k.GetName(), CreatedBy: k.GetCreatedBy(), CreatedAt: k.GetCreatedAt().AsTime(),
		ExpiresAt: optional(k.GetExpiresAt()), RevokedAt: optional(k.GetRevokedAt()), LastUsedAt: optional(k.GetLastUsedAt()),
	}
}

type tokenView struct {
	Token     string    `json:"token"`
	ThreadID  string    `json:"thread_id"`
	AgentID   string    `json:"agent_id"`
	Scopes    []string  `json:"scopes"`
	ExpiresAt time.Time `json:"expires_at"`
}

type threadView struct {
	ID             string      `json:"id"`
	HouseID        string      `json:"house_id"`
	StreamID       string      `json:"stream_id"`
	Name           string      `json:"name"` // always present; empty is untitled
	Status         string      `json:"status"`
	Parent         parentView  `json:"parent"`
	AgentID        string      `json:"agent_id,omitempty"`
	AnsweringID    string      `json:"answering_agent_id,omitempty"`
	EnvironmentID  string      `json:"environment_id,omitempty"`
	SandboxID      string      `json:"sandbox_id,omitempty"`
	Tags           []string    `json:"tags,omitempty"`
	Tail           int64       `json:"tail"` // always present; 0 is an empty log
	PinnedAt       *time.Time  `json:"pinned_at,omitempty"`
	ForkedFrom     *originView `json:"forked_from,omitempty"`
	Running        *workView   `json:"running,omitempty"`
	OpenApprovals  int32       `json:"open_approvals"` // always present
	CreatedAt      time.Time   `json:"created_at"`
	UpdatedAt      time.Time   `json:"updated_at"`
	LastActivityAt time.Time   `json:"last_activity_at"`
}

// originView has no thread_id once that thread was deleted.
type originView struct {
	ThreadID string `json:"thread_id,omitempty"`
	Seq      int64  `json:"seq"`
}

// workView has either a command or a turn with its bot.
type workView struct {
	CommandID string    `json:"command_id,omitempty"`
	TurnID    string    `json:"turn_id,omitempty"`
	AgentID   string    `json:"agent_id,omitempty"`
	AgentName string    `json:"agent_name,omitempty"`
	RunEpoch  int64     `json:"run_epoch,omitempty"`
	Since     time.Time `json:"since"`
}

type parentView struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func viewThread(t *arbev1.Thread) threadView {
	view := threadView{
		ID: t.GetId(), HouseID: t.GetHouseId(), StreamID: t.GetStreamId(), Name: t.GetName(), Status: t.GetStatus(),
		Parent:  parentView{Kind: t.GetParent().GetKind(), ID: t.GetParent().GetId()},
		AgentID: t.GetAgentId(), AnsweringID: t.GetAnsweringAgentId(), EnvironmentID: t.GetEnvironmentId(), SandboxID: t.GetSandboxId(), Tags: t.GetTags(),
		Tail: t.GetTail(), PinnedAt: optional(t.GetPinnedAt()), CreatedAt: t.GetCreatedAt().AsTime(),
		UpdatedAt: t.GetUpdatedAt().AsTime(), LastActivityAt: t.GetLastActivityAt().AsTime(),
		OpenApprovals: t.GetOpenApprovals(),
	}
	if from := t.GetForkedFrom(); from != nil {
		view.ForkedFrom = &originView{from.GetThreadId(), from.GetSeq()}
	}
	if r := t.GetRunning(); r != nil {
		view.Running = &workView{r.GetCommandId(), r.GetTurnId(), r.GetAgentId(), r.GetAgentName(), r.GetRunEpoch(), r.GetSince().AsTime()}
	}
	return view
}

func optional(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := ts.AsTime()
	return &t
}

// entryView always has all its fields except state; author_agent_id is null for entries of arbe itself.
type entryView struct {
	Seq           int64           `json:"seq"`
	ID            string          `json:"id"`
	Type          string          `json:"type"`
	AuthorAgentID *string         `json:"author_agent_id"`
	Payload       json.RawMessage `json:"payload"`
	TS            time.Time       `json:"ts"`
	State         *stateView      `json:"state,omitempty"`
}

// stateView is what became of a message.
type stateView struct {
	Text    string `json:"text,omitempty"`
	Edits   int32  `json:"edits"`
	Deleted bool   `json:"deleted"`
	// ChangedAt is when the message was edited or deleted, or nil if it was not.
	ChangedAt *time.Time     `json:"changed_at,omitempty"`
	Reactions []reactionView `json:"reactions,omitempty"`
}

type reactionView struct {
	Emoji    string   `json:"emoji"`
	AgentIDs []string `json:"agent_ids"`
}

func viewEntry(e *arbev1.Entry) entryView {
	v := entryView{
		Seq: e.GetSeq(), ID: e.GetId(), Type: e.GetType(), Payload: json.RawMessage(e.GetPayload()), TS: e.GetTs().AsTime(),
	}
	if author := e.GetAuthorAgentId(); author != "" {
		v.AuthorAgentID = &author
	}
	if became := e.GetState(); became != nil {
		v.State = &stateView{Text: became.GetText(), Edits: became.GetEdits(), Deleted: became.GetDeleted(), ChangedAt: optional(became.GetChangedAt())}
		for _, r := range became.GetReactions() {
			v.State.Reactions = append(v.State.Reactions, reactionView{r.GetEmoji(), r.GetAgentIds()})
		}
	}
	return v
}

// deltaView is a piece of a running command's output. Data that is not UTF-8 text is in base64, because a JSON string
// cannot hold it.
type deltaView struct {
	EntryID    string `json:"entry_id"`
	Offset     int64  `json:"offset"`
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"`
}

type secretView struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	CreatedAt time.Time       `json:"created_at"`
	SetAt     time.Time       `json:"set_at"`
	SetBy     string          `json:"set_by_agent_id,omitempty"`
	UsedAt    *time.Time      `json:"used_at,omitempty"`
	Redacted  bool            `json:"redacted"`
	Uses      []secretUseView `json:"uses"`
}

type secretUseView struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func viewSecret(s *arbev1.Secret) secretView {
	v := secretView{ID: s.GetId(), Name: s.GetName(), CreatedAt: s.GetCreatedAt().AsTime(), SetAt: s.GetSetAt().AsTime(), SetBy: s.GetSetByAgentId(),
		UsedAt: optional(s.GetUsedAt()), Redacted: s.GetRedacted(), Uses: []secretUseView{}}
	for _, u := range s.GetUses() {
		v.Uses = append(v.Uses, secretUseView{u.GetKind(), u.GetName()})
	}
	return v
}

type endpointView struct {
	Name         string   `json:"name"`
	Provider     string   `json:"provider"`
	BaseURL      string   `json:"base_url"`
	Dialect      string   `json:"dialect"`
	Source       string   `json:"source"`
	SecretName   string   `json:"secret_name,omitempty"`
	Own          bool     `json:"own"`
	Models       []string `json:"models"`
	DefaultModel string   `json:"default_model,omitempty"`
	Problem      string   `json:"problem,omitempty"`
	// HouseDefault is the house's default model if this endpoint has it, and absent otherwise.
	HouseDefault string `json:"house_default,omitempty"`
}

// viewEndpoint returns the view of an endpoint of a list. A nil list means that the endpoint is in no list.
func viewEndpoint(e *arbev1.ModelEndpoint, of *arbev1.ListModelsResponse) endpointView {
	v := endpointView{Name: e.GetName(), Provider: e.GetProvider(), BaseURL: e.GetBaseUrl(), Dialect: e.GetDialect(), Source: e.GetSource(), SecretName: e.GetSecretName(),
		Own: e.GetOwn(), Models: e.GetModels(), DefaultModel: e.GetDefaultModel(), Problem: e.GetProblem()}
	if v.Models == nil {
		v.Models = []string{}
	}
	if strings.HasPrefix(of.GetDefaultModel(), e.GetName()+"/") {
		v.HouseDefault = of.GetDefaultModel()
	}
	return v
}
