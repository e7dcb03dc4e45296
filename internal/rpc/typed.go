package rpc

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// typedFields are the fields of the message Entry that hold the payload of each kind as a message. Each message has the
// same field names as the payload of its kind, so that no kind needs a converter of its own. A test compares the names.
var typedFields = fieldsByType(map[string]protoreflect.Name{
	entry.Chat{}.Type():                "chat",
	entry.Command{}.Type():             "command",
	entry.CommandResult{}.Type():       "command_result",
	entry.CommandWaiting{}.Type():      "command_waiting",
	entry.PiAssistant{}.Type():         "pi_assistant",
	entry.PiToolResult{}.Type():        "pi_tool_result",
	entry.PiCompaction{}.Type():        "pi_compaction",
	entry.TurnStarted{}.Type():         "turn_started",
	entry.TurnSteered{}.Type():         "turn_steered",
	entry.TurnWaiting{}.Type():         "turn_waiting",
	entry.LimitNear{}.Type():           "limit_near",
	entry.TurnEnded{}.Type():           "turn_ended",
	entry.Skipped{}.Type():             "skipped",
	entry.SandboxResumed{}.Type():      "sandbox_resumed",
	entry.StatusChanged{}.Type():       "status_changed",
	entry.Forked{}.Type():              "forked",
	entry.HouseCreated{}.Type():        "house_created",
	entry.Invited{}.Type():             "invited",
	entry.InviteRevoked{}.Type():       "invite_revoked",
	entry.MemberJoined{}.Type():        "member_joined",
	entry.MemberRemoved{}.Type():       "member_removed",
	entry.RoleChanged{}.Type():         "role_changed",
	entry.BotCreated{}.Type():          "bot_created",
	entry.BotChanged{}.Type():          "bot_changed",
	entry.EnvironmentPrepared{}.Type(): "environment_prepared",
})

func fieldsByType(names map[string]protoreflect.Name) map[string]protoreflect.FieldDescriptor {
	all := (&arbev1.Entry{}).ProtoReflect().Descriptor().Fields()
	fields := map[string]protoreflect.FieldDescriptor{}
	for kind, name := range names {
		fields[kind] = all.ByName(name)
	}
	return fields
}

// wireTypedEntry is [wireEntry], with the payload also as a message if its kind is known and it can be decoded. It costs
// several times as much as the text alone, so it is done only on request.
func wireTypedEntry(e entry.Entry) *arbev1.Entry {
	w := wireEntry(e)
	field, known := typedFields[e.Type]
	if !known {
		return w
	}
	m := w.ProtoReflect()
	payload := m.NewField(field)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(e.Payload, payload.Message().Interface()); err == nil {
		m.Set(field, payload)
	}
	return w
}

// wireTypedEvent is [wireEvent] with typed entries.
func wireTypedEvent(e stream.Event) *arbev1.TailResponse {
	if e.Entry != nil {
		return &arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: wireTypedEntry(*e.Entry)}}
	}
	return wireEvent(e)
}
