package model

import (
	"encoding/json"
	"errors"
)

// errReported ends a call whose provider reports a failure within the answer.
var errReported = errors.New("the provider reports an error")

// finish is how an answer ended; empty if it has not ended.
type finish string

const (
	endPlain  finish = "plain" // the model is done, or waits for results
	endLength finish = "length"
	endFilter finish = "filter" // the model, or a filter of its provider, refused
	endError  finish = "error"
)

// reader builds an answer from the events of a dialect. Any field of an event may be missing.
type reader interface {
	// read handles an event, and returns how it ended the answer; empty if more may follow.
	read(data []byte) (finish, error)
	// end returns how the answer ended after the last event; empty if it was cut.
	end() finish
}

// decode reads an event. It skips fields with other types than the dialect's.
func decode(data []byte, into any) error { return passable(json.Unmarshal(data, into)) }

// passable returns nil for the error that a value has an unexpected type, because the decoder skips such values.
func passable(err error) error {
	if _, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return nil
	}
	return err
}
