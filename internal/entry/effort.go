package entry

import (
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Effort is how hard a model thinks before it answers.
type Effort string

// The efforts. A model that cannot think ignores them, and one that lacks a level uses the next higher one.
const (
	// EffortDefault lets the provider decide how hard its model thinks.
	EffortDefault Effort = ""
	// EffortOff means no thinking, or as little as the model allows.
	EffortOff    Effort = "off"
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
)

// Efforts lists the efforts that people can choose, the least first.
var Efforts = []Effort{EffortOff, EffortLow, EffortMedium, EffortHigh}

// EffortWords lists [Efforts] for a message: "off, low, medium or high".
const EffortWords = "off, low, medium or high"

// ParseEffort parses an effort, ignoring case; empty means [EffortDefault]. The error is a [fault.Invalid] that names the
// field "think".
func ParseEffort(text string) (Effort, error) {
	word := Effort(strings.ToLower(strings.TrimSpace(text)))
	if word == EffortDefault {
		return word, nil
	}
	for _, e := range Efforts {
		if e == word {
			return e, nil
		}
	}
	return "", fault.Newf(fault.Invalid, "use "+EffortWords, "think: there is no effort %.60q", text)
}

// thinkDirective matches "/think LEVEL" at the beginning of a text, or after the mentions with which it begins.
var thinkDirective = lazyregexp.New(`^(\s*(?:@[A-Za-z0-9-]+[,:]?[ \t]+)*)/think(?:[ \t]+(\S+))?(?:\s+|$)`)

// ThinkDirective finds the directive that says how hard the bots asked by a chat should think: "/think LEVEL" at the very
// beginning of its text, or after nothing but mentions, as in "@arbe /think high why?". rest is the text without it.
//
// found is false if the text has no such directive. The error is a [fault.Invalid] for a directive without a level, with an
// unknown level, or with nothing after it.
func ThinkDirective(text string) (e Effort, rest string, found bool, err error) {
	if !strings.Contains(text, "/think") {
		return "", text, false, nil
	}
	at := thinkDirective.FindStringSubmatchIndex(text)
	if at == nil {
		return "", text, false, nil
	}
	if strings.TrimSpace(text[:at[3]]) == "" && at[3] > 0 {
		return "", text, false, nil // a space before a slash makes it a text
	}
	word := ""
	if at[4] >= 0 {
		word = text[at[4]:at[5]]
	}
	if e, err = ParseEffort(word); err != nil || e == EffortDefault {
		return "", text, true, fault.Newf(fault.Invalid, "write /think, one of "+EffortWords+", and then your question",
			"/think: there is no effort %.60q", word)
	}
	if rest = text[:at[3]] + text[at[1]:]; strings.TrimSpace(text[at[1]:]) == "" {
		return "", text, true, fault.New(fault.Invalid, "/think "+string(e)+": there is nothing to think about", "write your question after it")
	}
	return e, rest, true, nil
}
