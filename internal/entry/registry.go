package entry

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/arbe-dev/arbe/internal/fault"
)

// registry lists every known kind, in the order of the documentation.
var registry = []Kind{
	kind[Chat](Anyone),
	kind[Command](Server),
	kind[CommandResult](Server),
	kind[CommandWaiting](Server),
	kind[PiAssistant](Runner),
	kind[PiToolResult](Runner),
	kind[PiCompaction](Runner),
	kind[TurnStarted](Server),
	kind[TurnSteered](Server),
	kind[TurnWaiting](Server),
	kind[TurnFellBack](Server),
	kind[LimitNear](Server),
	kind[TurnEnded](Server),
	kind[PermissionAsked](Runner),
	kind[PermissionAnswered](Runner),
	kind[Skipped](Server),
	kind[SandboxResumed](Server),
	kind[SandboxWoken](Server),
	kind[HostRefused](Server),
	kind[HostAllowed](Server),
	kind[StatusChanged](Server),
	kind[AgentSpawn](Server),
	kind[Heartbeat](Runner),
	kind[RunFinished](Runner),
	kind[PiFailed](Server),
	kind[SessionOrphaned](Server),
	kind[CancelRequested](Server),
	kind[ChildFinished](Server),
	kind[ChildOverdue](Server),
	kind[QueueEdited](Server),
	kind[QueueMoved](Server),
	kind[QueueTimed](Server),
	kind[QueueCancelled](Server),
	kind[QueueTaken](Runner),
	kind[ChatEdited](Server),
	kind[ChatDeleted](Server),
	kind[ChatReacted](Server),
	kind[Forked](Server),
	kind[HouseCreated](Server),
	kind[Invited](Server),
	kind[InviteRevoked](Server),
	kind[MemberJoined](Server),
	kind[MemberRemoved](Server),
	kind[RoleChanged](Server),
	kind[BotCreated](Server),
	kind[BotChanged](Server),
	kind[EnvironmentPrepared](Server),
}

var byType = func() map[string]Kind {
	m := make(map[string]Kind, len(registry))
	for _, k := range registry {
		m[k.Type] = k
	}
	return m
}()

func kind[P Payload](w Writer) Kind {
	var zero P
	return Kind{Type: zero.Type(), Payload: reflect.TypeFor[P]().Name(), Writer: w, fields: fieldsOf(zero), decode: func(text json.RawMessage) (Payload, error) {
		var p P
		err := json.Unmarshal(text, &p)
		return p, err
	}}
}

// Kinds returns every known kind, in a copy, so that callers cannot change the registry.
func Kinds() []Kind { return append([]Kind(nil), registry...) }

// Decode decodes an entry's payload. ok is false if the kind is unknown or the payload does not match it: show such an
// entry generically instead of failing, because a newer server may have written it.
func Decode(e Entry) (p Payload, ok bool) {
	k, known := byType[e.Type]
	if !known {
		return nil, false
	}
	p, err := k.decode(e.Payload)
	return p, err == nil
}

// As decodes an entry's payload as a given kind: As[Chat](e). ok is false if the entry is of another kind.
func As[P Payload](e Entry) (p P, ok bool) {
	q, ok := Decode(e)
	if !ok {
		return p, false
	}
	p, ok = q.(P)
	return p, ok
}

// Check checks that writer may write d: its kind must be known and allowed for writer, and its payload must be valid
// JSON in valid UTF-8, of at most [MaxPayload] bytes, and valid for the kind. The error is a [fault.Invalid] that names
// the field, a [fault.Forbidden] for another writer's kind, or a [fault.Exhausted] for the size.
func Check(d Draft, writer Writer) error {
	if err := CheckID(d.ID, writer); err != nil {
		return err
	}
	switch k, known := byType[d.Type]; {
	case !known:
		return fault.Newf(fault.Invalid, "use one of "+writable(writer), "type: %q is not a kind of entry", Clip(d.Type, maxNamed))
	case writer > k.Writer:
		return fault.Newf(fault.Forbidden, "use one of "+writable(writer), "type: only arbe itself writes %q", d.Type)
	case strings.HasSuffix(d.ID, resultSuffix) && d.Type != (CommandResult{}).Type():
		// It would take the id of a result, which then could never be written.
		return fault.Newf(fault.Invalid, "choose another id", "id: ids ending in %q are reserved for command results", resultSuffix)
	case len(d.Payload) > MaxPayload:
		return fault.Newf(fault.Exhausted, "shorten it, or put it into a file", "payload: at most %d bytes, this has %d", MaxPayload, len(d.Payload)).WithReason(fault.TooLarge)
	case !utf8.Valid(d.Payload):
		return fault.New(fault.Invalid, "payload: it is not valid UTF-8", "send it as UTF-8 text")
	case !json.Valid(d.Payload):
		return fault.New(fault.Invalid, "payload: it is not JSON", "send one JSON object")
	default:
		p, err := k.decode(d.Payload)
		if err != nil {
			return mistyped(d.Type, err)
		}
		if err := k.readOneWay(d.Payload); err != nil {
			return err
		}
		if err := checkMarks(p, writer); err != nil {
			return err
		}
		return p.Validate()
	}
}

// checkMarks refuses the fields that are arbe's own marks on a payload.
func checkMarks(p Payload, writer Writer) error {
	if writer == Server {
		return nil
	}
	switch p := p.(type) {
	case Chat:
		if err := p.checkMarks(); err != nil {
			return err
		}
	case PiAssistant:
		if slices.ContainsFunc(p.Calls(), func(c PiBlock) bool { return c.ArtifactID != "" }) {
			return fault.New(fault.Forbidden, "content.artifactId: only arbe itself keeps files as artifacts", "leave it out")
		}
	case PiToolResult:
		if p.Details != nil && p.Details.ArtifactID != "" {
			return fault.New(fault.Forbidden, "details.artifactId: only arbe itself keeps files as artifacts", "leave it out")
		}
	case PermissionAnswered:
		if p.Outcome != Withdrawn || p.AnsweredBy != "" || p.Reason != "" {
			return fault.New(fault.Forbidden, "outcome: only arbe itself records people's answers", "use "+Withdrawn)
		}
	case RunFinished:
		if p.PatchArtifactID != "" {
			return fault.New(fault.Forbidden, "patch_artifact_id: only arbe itself keeps files as artifacts", "give patch_path instead")
		}
	}
	if ofTurn(p) {
		return fault.New(fault.Forbidden, "turn: only arbe itself writes the summary of a bot's turn", "leave it out")
	}
	return nil
}

func (c Chat) checkMarks() error {
	switch {
	case c.Run != nil:
		return fault.New(fault.Forbidden, "run: only arbe itself writes the result of a run", "leave it out")
	case c.Via != nil:
		return fault.New(fault.Forbidden, "via: only arbe itself writes how something was said", "leave it out")
	case c.Confined:
		return fault.New(fault.Forbidden, "confined: only arbe itself records the credential of a message", "leave it out")
	}
	return nil
}

// ofTurn reports whether a payload says that it belongs to a bot's turn.
func ofTurn(p Payload) bool {
	switch p := p.(type) {
	case Chat:
		return p.Turn != nil
	case PiAssistant:
		return p.Turn != ""
	case PiToolResult:
		return p.Turn != ""
	case PiCompaction:
		return p.Turn != ""
	case PermissionAsked:
		return p.TurnID != ""
	case PermissionAnswered:
		return p.TurnID != ""
	}
	return false
}

// mistyped names the payload field of the wrong JSON type. The decoder's message would name Go's types.
func mistyped(kind string, err error) error {
	field, is := "payload", "not what its type says"
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		is = "a JSON " + e.Value
		if e.Field != "" {
			field = e.Field
		}
	}
	return fault.Newf(fault.Invalid, "send a JSON object with the fields of a "+kind+" entry", "%s: it is %s", field, is).Because(err)
}

// CheckID checks the id of a draft, which may be empty.
func CheckID(id string, writer Writer) error {
	switch {
	case len(id) > maxID:
		return fault.Newf(fault.Invalid, "shorten it", "id: at most %d bytes, this has %d", maxID, len(id))
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return fault.New(fault.Invalid, "id: it is not valid UTF-8 text", "use letters and digits, such as a uuid")
	case writer != Server && strings.HasPrefix(id, TurnPrefix):
		return fault.Newf(fault.Invalid, "choose another id", "id: ids that begin with %q are reserved for the turns of bots", TurnPrefix)
	case writer == Anyone && strings.HasPrefix(id, RunPrefix):
		return fault.Newf(fault.Invalid, "choose another id", "id: ids that begin with %q are reserved for the runs of coding agents", RunPrefix)
	}
	return nil
}

// writable lists the types that a writer may write, for an error message.
func writable(w Writer) string {
	var names []string
	for _, k := range registry {
		if w <= k.Writer {
			names = append(names, k.Type)
		}
	}
	sort.Strings(names)
	text, _ := json.Marshal(names)
	return string(text)
}

// Reworded returns the entry of a message with its text replaced. It returns other entries unchanged.
func Reworded(e Entry, text string) Entry {
	if c, ok := As[Chat](e); ok {
		c.Text = text
		e.Payload = NewDraft("", "", c).Payload
	}
	return e
}
