package approval

import (
	"encoding/json"
	"testing"
)

// The tool gets exactly the arguments that a person approved: one object, which all readers read alike.
func TestArgumentsThatArePutToAPersonAreOneObject(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		``:                                  `{}`,
		` null `:                            `{}`,
		`{"b":1,"a":"x"}`:                   `{"a":"x","b":1}`,
		`{"a":1,"a":2}`:                     `{"a":2}`,
		`{"n":12345678901234567890.10}`:     `{"n":12345678901234567890.10}`,
		`{"html":"<b>&"}`:                   `{"html":"<b>&"}`,
		`{"command":"ls"} {"command":"rm"}`: ``,
		`{"command":"ls"} x`:                ``,
		`["ls"]`:                            ``,
		`"ls"`:                              ``,
	} {
		got, err := canonical(json.RawMessage(given))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s is %s (%v), want %s", given, got, err, want)
		}
	}
}
