package entry_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// A person sets how hard bots think at the very beginning of a text, or after nothing but mentions.
func TestThinkDirective(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		effort entry.Effort
		rest   string
	}{
		"/think high why?":                  {entry.EffortHigh, "why?"},
		"/think off what is 2+2?":           {entry.EffortOff, "what is 2+2?"},
		"@arbe /think high why?":            {entry.EffortHigh, "@arbe why?"},
		"@arbe, @lint: /think LOW\n\nwhy?":  {entry.EffortLow, "@arbe, @lint: why?"},
		"  @arbe \t/think medium why?\nso?": {entry.EffortMedium, "  @arbe \twhy?\nso?"},
	} {
		e, rest, found, err := entry.ThinkDirective(text)
		if e != want.effort || rest != want.rest || !found || err != nil {
			t.Errorf("%q: %q, %q, %t, %v", text, e, rest, found, err)
		}
		if c := (entry.Chat{Text: text, Think: want.effort}); c.Words() != want.rest {
			t.Errorf("a model reads %q", c.Words())
		}
		if c := (entry.Chat{Text: text}); c.Words() != text {
			t.Errorf("without the effort, a model reads %q", c.Words())
		}
	}
	for _, text := range []string{
		"why? /think high", "see /think high", "@arbe look: /think high why?", " /think high why?", "//think high why?", "/thinking high", "/think/high x",
		"> @arbe /think high why?", "`/think high why?`", "⟦person: Ada⟧\n/think high why?", "@arbe\n/think high why?", "x@arbe /think high why?", "",
	} {
		if e, rest, found, err := entry.ThinkDirective(text); e != "" || rest != text || found || err != nil {
			t.Errorf("%q: %q, %q, %t, %v", text, e, rest, found, err)
		}
	}
	for text, want := range map[string]string{
		"/think hgih why?":       `/think: there is no effort "hgih"; write /think, one of off, low, medium or high, and then your question`,
		"@arbe /think about it":  `there is no effort "about"`,
		"/think":                 `there is no effort ""`,
		"/think high":            "there is nothing to think about",
		"@arbe /think high \n\t": "there is nothing to think about",
	} {
		_, rest, found, err := entry.ThinkDirective(text)
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) || !found || rest != text {
			t.Errorf("%q: %q, %t, %v", text, rest, found, err)
		}
		if text[0] == '/' && entry.CheckComposed(text) == nil {
			t.Errorf("%q is said as it is", text)
		}
	}
	if got := entry.Unescaped("//think high why?"); got != "/think high why?" {
		t.Errorf("an escaped one says %q", got)
	}
}

func TestEffortOfAChat(t *testing.T) {
	t.Parallel()
	for payload, ok := range map[string]bool{`{"text":"x","think":"high"}`: true, `{"text":"x","think":""}`: true, `{"text":"x","think":"very"}`: false, `{"text":"x","think":"HIGH"}`: false} {
		err := entry.Check(entry.Draft{Type: "chat", Payload: []byte(payload)}, entry.Anyone)
		if ok != (err == nil) || !ok && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", payload, err)
		}
	}
}
