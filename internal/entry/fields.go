package entry

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode"

	"github.com/arbe-dev/arbe/internal/fault"
)

// fieldsOf maps the folded names of a payload's fields to their JSON names.
func fieldsOf(p Payload) map[string]string {
	names := map[string]string{fold("type"): "type"}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(p)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names[fold(name)] = name
		}
	}
	return names
}

// readOneWay checks that every JSON parser reads a payload alike, so that a payload cannot show people one thing and
// programs another. encoding/json accepts "Text" for "text", and takes the last of several equal fields; other readers do
// not, or take the first. For the same reason, a field "type" in the payload must equal the entry's type.
func (k Kind) readOneWay(payload json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil // it has no fields
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		key, isText := token.(string)
		if err != nil || !isText {
			return nil // cannot happen, because the payload is JSON
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil // cannot happen either
		}
		name, ours := k.fields[fold(key)]
		switch {
		case !ours:
			continue
		case name != key:
			return fault.Newf(fault.Invalid, "write it in lowercase", "payload: the field %s is written %q", name, Clip(key, maxNamed))
		case seen[name]:
			return fault.Newf(fault.Invalid, "write it once", "payload: the field %s occurs more than once", name)
		}
		seen[name] = true
		var said string
		if name == "type" && (json.Unmarshal(value, &said) != nil || said != k.Type) {
			return fault.Newf(fault.Invalid, "leave it out, or use the entry's type", "payload.type: it is not %q, the type of the entry", k.Type)
		}
	}
	return nil
}

// fold returns the form in which encoding/json compares names.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
