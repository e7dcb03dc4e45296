package model

import (
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
)

// DeltaKind is the kind of a [Delta].
type DeltaKind string

// The kinds of deltas.
const (
	TextDelta      DeltaKind = "text"
	ThinkingDelta  DeltaKind = "thinking"
	CallStartDelta DeltaKind = "call_start"
	CallArgsDelta  DeltaKind = "call_args"
	CallEndDelta   DeltaKind = "call_end"
)

// Delta is one piece of an answer as it is written.
type Delta struct {
	Kind DeltaKind
	// Block is the index of its block. Blocks are counted as they begin; the answer leaves out unfinished calls.
	Block int
	// Text is a piece of a text, of thinking, or of the arguments of a call as the model writes them.
	Text string
	// CallID and CallName identify the call, in its start; its other deltas have only the CallID.
	CallID   string
	CallName string
}

// Answer is a model's answer.
type Answer struct {
	// Message is the answer in pi's shape. All its calls are complete: their arguments are JSON of at most 100 levels,
	// or a JSON string with what the model wrote instead. Run them only if its StopReason is [entry.PiToolUse].
	Message entry.PiAssistant
	// Usage is the call's usage. Estimated reports that part of it is a guess, because the call ended before the provider
	// reported it.
	Usage     Usage
	Estimated bool
	// Cost is the cost of the call. If the model's price is unknown, CostKnown is false and Cost is 0.
	Cost      Money
	CostKnown bool
}

// Call is a call of a model that has ended.
type Call struct {
	Provider Provider
	// Outcome is "ok", "stopped" if the caller stopped it or left, or the [Kind] of its error.
	Outcome string
	Took    time.Duration
	Usage   Usage
	// Cost is 0 if the model's price is unknown.
	Cost Money
}
