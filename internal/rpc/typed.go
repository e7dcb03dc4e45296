package rpc

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/stream"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// typedFields are the fields of the message Entry that hold the payload of each kind as a message. This message has the name
// of the kind's payload type and the same field names, so that no kind needs a line or a converter here. A test checks that
// every kind has such a field, and compares the names of the fields.
var typedFields = func() map[string]protoreflect.FieldDescriptor {
	typed := (&arbev1.Entry{}).ProtoReflect().Descriptor().Oneofs().ByName("typed").Fields()
	byMessage := map[string]protoreflect.FieldDescriptor{}
	for i := range typed.Len() {
		byMessage[string(typed.Get(i).Message().Name())] = typed.Get(i)
	}
	fields := map[string]protoreflect.FieldDescriptor{}
	for _, kind := range entry.Kinds() {
		if field := byMessage[kind.Payload]; field != nil {
			fields[kind.Type] = field
		}
	}
	return fields
}()

// wireTypedEntry is like [wireEntry], and adds the payload as a message if the kind is known and the payload can be decoded.
// It costs several times as much as the text alone, so it is used only on request.
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

// wireTypedEvent is like [wireEvent], with typed entries.
func wireTypedEvent(e stream.Event) *arbev1.TailResponse {
	if e.Entry != nil {
		return &arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: wireTypedEntry(*e.Entry)}}
	}
	return wireEvent(e)
}
