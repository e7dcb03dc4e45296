package rpc

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strictJSON reads and writes JSON messages as connect does, but for a field that the contract does not have: that is an
// error which names it, also inside of a message. A field that is misspelled would otherwise be one that is not sent,
// and the call would do something else than what was asked for.
//
// Unknown fields of binary messages are ignored, as protobuf has it: such clients are generated from a contract.
type strictJSON struct{ name string }

// Name is the codec's name, which is a content type's.
func (c strictJSON) Name() string { return c.name }

// IsBinary reports whether messages are no text.
func (strictJSON) IsBinary() bool { return false }

// Marshal writes a message.
func (c strictJSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend writes a message behind dst.
func (strictJSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// unmarshalError takes apart what protojson says, whose parts may be joined by a blank that is not one.
var unmarshalError = regexp.MustCompile(`^proto:[\s\x{a0}]+(?:syntax error )?\(line (\d+:\d+)\):[\s\x{a0}]+(?:unknown field "(.*)"$)?(.*)$`)

// Unmarshal reads a message.
func (strictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	if len(text) == 0 {
		return errors.New("the request has no body, where a JSON object has to be: send {}")
	}
	err := protojson.Unmarshal(text, m)
	if err == nil {
		return nil
	}
	said := unmarshalError.FindStringSubmatch(err.Error())
	switch {
	case said == nil:
		return errors.New("the request is not the JSON of this call's request")
	case said[2] != "":
		return fmt.Errorf("the request has an unknown field %q (at %s)", said[2], said[1])
	}
	return fmt.Errorf("the request cannot be read at %s: %s", said[1], said[3])
}
