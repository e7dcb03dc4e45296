package stream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/stream"
)

func TestTheMessagesOfAnAppend(t *testing.T) {
	t.Parallel()
	ones := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	inner := ones(2 * stream.MaxMessages)
	commas := strings.Repeat(`,\",[{`, stream.MaxMessages)
	for name, c := range map[string]struct {
		content string
		drafts  int
		code    fault.Code
	}{
		"as many as allowed":                   {ones(stream.MaxMessages), stream.MaxMessages, ""},
		"one more":                             {ones(stream.MaxMessages + 1), 0, fault.Exhausted},
		"one more, with white space":           {"\r\n" + strings.ReplaceAll(ones(stream.MaxMessages+1), "1", "\t[1, 1] ") + " ", 0, fault.Exhausted},
		"one more, after strings that end":     {`["","\\","]}\"",` + ones(stream.MaxMessages - 2)[1:], 0, fault.Exhausted},
		"many, and trailing data":              {ones(2*stream.MaxMessages) + "]", 0, fault.Invalid},
		"many, without an end":                 {strings.TrimSuffix(ones(2*stream.MaxMessages), "]"), 0, fault.Invalid},
		"many, of which the last is invalid":   {strings.TrimSuffix(ones(2*stream.MaxMessages), "1]") + "x]", 0, fault.Invalid},
		"many commas in a nested array":        {"[" + inner + "]", 1, ""},
		"many commas in a nested object":       {`[{"a":` + inner + `,"b":` + inner + "},1]", 2, ""},
		"many commas in a string":              {`["` + commas + `","` + commas + `\\",1]`, 3, ""},
		"an object with many fields, no array": {`{"a":1` + strings.Repeat(`,"a":1`, 2*stream.MaxMessages) + "}", 1, ""},
	} {
		drafts, err := stream.Drafts("application/json", "", []byte(c.content))
		if fault.CodeOf(err) != c.code || len(drafts) != c.drafts {
			t.Errorf("%s: %d drafts, %v", name, len(drafts), err)
		} else if c.code == fault.Exhausted && (fault.From(err).Reason() != fault.TooLarge || !strings.Contains(err.Error(), fmt.Sprint(stream.MaxMessages))) {
			t.Errorf("%s: the error is %v, %s", name, err, fault.From(err).Reason())
		}
		if valid := json.Valid([]byte(c.content)); valid != (c.code != fault.Invalid) {
			t.Errorf("%s: it is valid JSON: %t", name, valid)
		}
	}
}

// TestTooManyMessagesAreNotBuilt is not parallel, because it counts allocations.
func TestTooManyMessagesAreNotBuilt(t *testing.T) {
	content := []byte("[" + strings.Repeat("1,", 1<<17) + "1]")
	allocations := testing.AllocsPerRun(1, func() {
		if _, err := stream.Drafts("application/json", "", content); fault.CodeOf(err) != fault.Exhausted {
			t.Errorf("it is answered %v", err)
		}
	})
	if allocations > stream.MaxMessages {
		t.Errorf("refusing an append of 131,073 messages makes %.0f allocations", allocations)
	}
}
