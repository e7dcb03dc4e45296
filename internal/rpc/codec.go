package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// strictJSON reads and writes JSON messages as connect does, except that an unknown field, even in a nested message, is an
// error that names the field. Otherwise, a call with a misspelled field would do something that the caller did not want.
//
// Unknown fields of binary messages are ignored, as usual with protobuf. Such clients are generated from the contract, so
// they misspell nothing.
type strictJSON struct{ name string }

// Name returns the codec's name, which is the part of the content type after "application/".
func (c strictJSON) Name() string { return c.name }

// IsBinary returns false, because JSON is text.
func (strictJSON) IsBinary() bool { return false }

// Marshal encodes a message.
func (c strictJSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends an encoded message to dst.
func (strictJSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// unmarshalError matches an error of protojson. protojson deliberately varies its spaces so that nobody relies on its
// messages, so this accepts no-break spaces. An error that does not match gets a general message.
var unmarshalError = lazyregexp.New(`^proto:[\s\x{a0}]+(?:syntax error )?\(line (\d+:\d+)\):[\s\x{a0}]+(?:unknown field "(.*)"$)?(.*)$`)

// Unmarshal decodes a message. Errors name the position in the text.
func (strictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	if len(text) == 0 {
		return errors.New("the request has no body, which must be a JSON object: send {}")
	}
	err := unmarshal(text, m)
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
	if wrong := unknownName(m.ProtoReflect().Descriptor(), said[3]); wrong != "" {
		return fmt.Errorf("%s (at %s)", wrong, said[1])
	}
	return fmt.Errorf("the request cannot be read at %s: %s", said[1], said[3])
}
