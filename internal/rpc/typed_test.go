package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// fill sets every field of a payload to a nonzero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.Set(reflect.ValueOf(json.RawMessage(`{"key":"text"}`)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint16:
		v.SetUint(7)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a payload has a " + v.Kind().String())
	}
}

// plain returns JSON with its values as texts, because the JSON of protobuf has large numbers as strings.
func plain(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatal(err)
	}
	var texts func(any) any
	texts = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for key := range v {
				v[key] = texts(v[key])
			}
			return v
		case []any:
			for i := range v {
				v[i] = texts(v[i])
			}
			return v
		}
		return fmt.Sprint(v)
	}
	return texts(value)
}

func TestEveryKindHasAMessageWithTheFieldsOfItsPayload(t *testing.T) {
	t.Parallel()
	typed := (&arbev1.Entry{}).ProtoReflect().Descriptor().Oneofs().ByName("typed")
	if got, want := typed.Fields().Len(), len(entry.Kinds()); got != want {
		t.Errorf("the oneof has %d messages, and there are %d kinds", got, want)
	}
	for _, k := range entry.Kinds() {
		t.Run(k.Type, func(t *testing.T) {
			zero, ok := entry.Decode(entry.Entry{Type: k.Type, Payload: []byte("{}")})
			if !ok {
				t.Fatal("its empty payload cannot be read")
			}
			full := reflect.New(reflect.TypeOf(zero)).Elem()
			fill(full)
			payload, err := json.Marshal(full.Interface())
			if err != nil {
				t.Fatal(err)
			}
			e := wireTypedEntry(entry.Entry{Seq: 1, Type: k.Type, Payload: payload}).ProtoReflect()
			field := e.WhichOneof(typed)
			if field == nil || field != typedFields[k.Type] {
				t.Fatalf("its payload becomes %v", field)
			}
			// Pi's payloads have names in lowerCamelCase, like the JSON of protobuf.
			text, err := protojson.MarshalOptions{UseProtoNames: !strings.HasPrefix(k.Type, "pi.")}.Marshal(e.Get(field).Message().Interface())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plain(t, text), plain(t, payload); !reflect.DeepEqual(got, want) {
				t.Errorf("it becomes %v, want %v", got, want)
			}
		})
	}
	t.Run("an unknown or unreadable payload stays text", func(t *testing.T) {
		for kind, payload := range map[string]string{"of a later version": `{"text": "hi"}`, "chat": `{"text": 1}`} {
			e := wireTypedEntry(entry.Entry{Type: kind, Payload: []byte(payload)})
			if e.GetTyped() != nil || e.GetPayload() != payload {
				t.Errorf("%s becomes %v", kind, e)
			}
		}
	})
}

// The TypeScript client knows every kind.
func TestEveryKindIsInTheTypeScriptClient(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../proto/ts/src/kinds.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range entry.Kinds() {
		if line := fmt.Sprintf("  %q: %sSchema,\n", k.Type, k.Payload); !strings.Contains(string(text), line) {
			t.Errorf("proto/ts/src/kinds.ts has no line %q", line)
		}
	}
}

func BenchmarkEntriesOnTheWire(b *testing.B) {
	payload, err := json.Marshal(entry.Chat{Text: "a line of what people say to each other, of the usual length"})
	if err != nil {
		b.Fatal(err)
	}
	e := entry.Entry{Seq: 1, ID: "id", StreamID: "arbe-thread-x", Type: "chat", Payload: payload}
	for name, wire := range map[string]func(entry.Entry) *arbev1.Entry{"text": wireEntry, "typed": wireTypedEntry} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = wire(e)
			}
		})
	}
}
