package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The gateway reads the same fields as a JSON parser, from every text that is JSON.
func FuzzEachField(f *testing.F) {
	for _, text := range []string{`{}`, ` { } `, `{"model":"a"}`, `{"a":[{"b":"}\""}],"model" : "x\\", "c":1 }`, `{"a":1`, `{"a":}`, `{"a" 1}`, `{,}`, `{"a":1,}`, `{"a":"x"}{}`,
		`{"mod\u0065l":"x"}`, `[]`, `"a"`, ``, `{"a":[}`, `{"a":1 2}`, `{"a":tru}`, "{\"a\":\"\x01\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]string{}
		whole := eachField(text, func(name, value []byte) bool { got[string(name)] = string(value); return true })
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			if whole && json.Valid(text) {
				t.Errorf("%q is accepted as an object", text)
			}
			return
		}
		if !whole || len(got) != len(want) {
			t.Errorf("of %q it reads %q (%t)", text, got, whole)
		}
		for name, value := range want {
			if got[name] != string(bytes.TrimSpace(value)) {
				t.Errorf("of %q it reads %q as %q", text, name, got[name])
			}
		}
	})
}

// The gateway reads the same elements as a JSON parser, from every text that is JSON.
func FuzzEachElement(f *testing.F) {
	for _, text := range []string{`[]`, ` [ ] `, `[1]`, ` [ {"a":"]\""} , null,[1,[2]] , "x\\" ] `, `[1`, `[,]`, `[1,]`, `[1 2]`, `[1]]`, `[1][]`, `{}`, `"a"`, ``, `[tru]`, `["a"1]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got []string
		whole := eachElement(text, func(value []byte) bool { got = append(got, string(value)); return true })
		var want []json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			if whole && json.Valid(text) {
				t.Errorf("%q is accepted as an array", text)
			}
			return
		}
		if !whole || !slices.EqualFunc(got, want, func(g string, w json.RawMessage) bool { return g == string(bytes.TrimSpace(w)) }) {
			t.Errorf("of %q it reads %q (%t)", text, got, whole)
		}
	})
}

func TestToolsOfTheProviderAreFound(t *testing.T) {
	t.Parallel()
	for tools, remote := range map[string]string{
		`null`: "", `[]`: "", `[ ]`: "", `[null]`: "", `[{}]`: "", `[{"type":"function"},{"name":"web_search"}]`: "", `[{"type":["web_search"]},{"type":null}]`: "",
		`{}`: "", `{"type":"web_search"}`: "tools", `"web_search"`: "tools", `[1]`: "tools", `[[{"type":"web_search"}]]`: "tools", `[{"type":tru}]`: "tools", `[{"a":1},]`: "tools",
		`[{"type":"Web_Search_1"}]`:                          "Web_Search_1",
		`[null,{"name":"a","type" : "w\u0065b_search"}]`:     "web_search",
		`[{"t\u0079pe":"mcp"}]`:                              "mcp",
		`[{"type":"web_search","type":"function"}]`:          "web_search",
		`[{"type":"function","x":1,"type":"web_search"}]`:    "web_search",
		`[{"name":"a"},{"googleSearch":{}},{"name":"b"}]`:    "googleSearch",
		`[{"Url\u0043ontext":{},"functionDeclarations":[]}]`: "UrlContext",
	} {
		_, err := readHead([]byte(`{"model":"m","tools":`+tools+`}`), route{})
		if (err != nil) != (remote != "") || err != nil && !strings.Contains(err.Error(), strconv.Quote(remote)) {
			t.Errorf("the tools %s: %v, want %q", tools, err, remote)
		}
	}
}

func TestARequestHasFewFields(t *testing.T) {
	t.Parallel()
	with := func(fields int) []byte {
		text := []byte(`{"model":"m"`)
		for i := range fields - 1 {
			text = append(text, `,"`+strconv.Itoa(i)+`":0`...)
		}
		return append(text, '}')
	}
	if _, err := readHead(with(maxFields), route{}); err != nil {
		t.Errorf("%d fields: %v", maxFields, err)
	}
	if _, err := readHead(with(maxFields+1), route{}); err == nil || !strings.Contains(err.Error(), "more than 256 fields") {
		t.Errorf("%d fields: %v", maxFields+1, err)
	}
}

// The memory that a request holds is that of its text, so reading its head must not allocate more for a request with more
// in it.
func TestTheHeadOfARequestTakesNoMemory(t *testing.T) {
	const tools = 5_000
	many := func(element string) string { return strings.TrimSuffix(strings.Repeat(element+",", tools), ",") }
	for name, text := range map[string]string{
		"tools":             `{"model":"m","tools":[` + many(`{"a":1}`) + `]}`,
		"tools with types":  `{"model":"m","tools":[` + many(`{"type":"function","name":"a tool with a name that is long"}`) + `]}`,
		"fields of a tool":  `{"model":"m","tools":[{` + many(`"FIELD_OF_A_TOOL":{"b":2}`) + `}]}`,
		"messages":          `{"model":"m","messages":[` + many(`{"a":1}`) + `]}`,
		"fields":            `{"model":"m",` + many(`"a":1`) + `}`,
		"tools of Google's": `{"model":"m","tools":[` + many(`{"functionDeclarations":[]}`) + `]}`,
	} {
		body := []byte(text)
		if made := testing.AllocsPerRun(1, func() { readHead(body, route{}) }); made > tools/100 {
			t.Errorf("%s: it allocates %.0f times", name, made)
		}
	}
}
