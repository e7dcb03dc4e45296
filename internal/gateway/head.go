package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// head is the part of a request that the gateway parses.
type head struct {
	model string
	// remote names a tool or file that the provider would run or fetch for the request. It is empty without one.
	remote string
}

// remoteKeys are the fields of requests that make the provider do more than answer. remoteTools are the prefixes of
// such tools' types or, in Google's dialect, of their names. Such tools cost more than tokens, and reach hosts of the
// internet that the sandbox may not reach.
var (
	remoteKeys  = []string{"mcp_servers", "web_search_options", "plugins"}
	remoteTools = []string{"web_search", "web_fetch", "code_execution", "mcp", "file_search", "code_interpreter", "image_generation", "openrouter:",
		"google", "urlcontext", "url_context", "codeexecution", "enterprise"}
)

func isRemote(name []byte) bool {
	return slices.ContainsFunc(remoteTools, func(p string) bool { return len(name) >= len(p) && strings.EqualFold(string(name[:len(p)]), p) })
}

// maxFields is how many fields a request may have. Agents send about 20.
const maxFields = 256

// readHead parses as much of a request as the gateway needs. It reads fields as providers do, by their exact names. It
// refuses a duplicate field, because the provider might read the other one.
func readHead(body []byte, at route) (h head, err error) {
	var seen [][]byte
	whole := eachField(body, func(name, value []byte) bool {
		switch {
		case slices.ContainsFunc(seen, func(s []byte) bool { return bytes.Equal(s, name) }):
			err = fault.Newf(fault.Invalid, "send it once", "the request has the field %q twice", entry.Clip(string(name), 40))
			return false
		case len(seen) == maxFields:
			err = fault.Newf(fault.Invalid, "send fewer", "the request has more than %d fields", maxFields)
			return false
		}
		seen = append(seen, name)
		h.take(name, value)
		return true
	})
	if err == nil && !whole {
		err = fault.New(fault.Invalid, "the request is not a JSON object", "send one")
	}
	if err != nil {
		return h, err
	}
	if at.model != "" {
		h.model = at.model
	}
	switch {
	case h.model == "":
		return h, fault.New(fault.Invalid, "the request names no model", "name one as the field model")
	case h.remote != "":
		return h, fault.Newf(fault.Invalid, "turn it off in the agent", "the gateway passes on no tools that the provider itself runs, such as %q", entry.Clip(h.remote, 40))
	}
	return h, nil
}

// eachField calls f with the fields of a JSON object until f returns false. It reports whether it reached the end of
// the object. It does not check the values of fields, because a conversation is long and its provider checks it. It
// copies nothing but names with escapes, because what it copied would exceed the memory that the request holds.
func eachField(text []byte, f func(name, value []byte) bool) bool {
	at := blank(text, 0)
	if at == len(text) || text[at] != '{' {
		return false
	}
	for first := true; ; first = false {
		at = blank(text, at+1)
		if at < len(text) && text[at] == '}' && first {
			break
		}
		from := at
		if at = skip(text, from); at == len(text) {
			return false
		}
		name, ok := unquote(text[from:at])
		if !ok {
			return false
		}
		if at = blank(text, at); at == len(text) || text[at] != ':' {
			return false
		}
		from = blank(text, at+1)
		if at = skip(text, from); at == from || at == len(text) || !f(name, text[from:at]) {
			return false
		}
		if at = blank(text, at); at == len(text) || text[at] != ',' && text[at] != '}' {
			return false
		}
		if text[at] == '}' {
			break
		}
	}
	return blank(text, at+1) == len(text)
}

// eachElement calls f with the elements of a JSON array until f returns false. It reports whether it reached the end of
// the array. It does not check the elements.
func eachElement(text []byte, f func(value []byte) bool) bool {
	at := blank(text, 0)
	if at == len(text) || text[at] != '[' {
		return false
	}
	for first := true; ; first = false {
		at = blank(text, at+1)
		if at < len(text) && text[at] == ']' && first {
			break
		}
		from := at
		if at = skip(text, from); at == from || at == len(text) || !f(text[from:at]) {
			return false
		}
		if at = blank(text, at); at == len(text) || text[at] != ',' && text[at] != ']' {
			return false
		}
		if text[at] == ']' {
			break
		}
	}
	return blank(text, at+1) == len(text)
}

// unquote returns the text of a JSON string, which is a part of the value unless it has escapes. It returns false for any
// other value.
func unquote(value []byte) (text []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	text = value[1 : len(value)-1]
	if !slices.ContainsFunc(text, func(c byte) bool { return c < ' ' || c == '\\' || c > '~' }) {
		return text, true
	}
	var decoded string
	err := json.Unmarshal(value, &decoded)
	return []byte(decoded), err == nil
}

// blank returns the end of the white space that begins at a position.
func blank(text []byte, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
		at++
	}
	return at
}

// skip returns the end of the JSON value that begins at a position, or the end of the text if the value is incomplete.
func skip(text []byte, at int) int {
	for depth := 0; at < len(text); {
		switch c := text[at]; {
		case c == '"':
			at = skipString(text, at)
		case c == '{', c == '[':
			depth++
			at++
		case c == '}', c == ']':
			if depth == 0 {
				return at
			}
			depth--
			at++
		case depth == 0 && (c == ',' || c == ':' || c <= ' '):
			return at
		default:
			at++
			continue
		}
		if depth == 0 {
			return at
		}
	}
	return len(text)
}

// skipString returns the end of the string that begins at a position.
func skipString(text []byte, at int) int {
	for at++; ; {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return len(text)
		}
		escapes := 0
		for i := at + n - 1; i >= at && text[i] == '\\'; i-- {
			escapes++
		}
		if at += n + 1; escapes%2 == 0 {
			return at
		}
	}
}

// take stores a field of a request.
func (h *head) take(name, value []byte) {
	switch string(value) {
	case "null", "[]", "{}", "false":
		return
	}
	switch key := string(name); {
	case key == "model":
		_ = json.Unmarshal(value, &h.model) // a value that is not a string names no model
	case slices.Contains(remoteKeys, key), key == "background":
		h.remote = key
	case key == "tools" && !(json.Valid(value) && eachElement(value, h.takeTool)):
		h.remote = key
	}
}

// takeTool stores a tool of a request. It returns false if the tool is not an object. Each of several types counts,
// because the provider might read any of them.
func (h *head) takeTool(tool []byte) bool {
	return string(tool) == "null" || eachField(tool, func(name, value []byte) bool {
		kind := name // Google's tools have names instead of types
		if string(name) == "type" {
			kind, _ = unquote(value) // not a string: it is a function
		}
		if isRemote(kind) {
			h.remote = string(kind)
		}
		return true
	})
}
