package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// action is the purpose of a request.
type action string

const (
	ask   action = "ask"   // call a model
	count action = "count" // count the tokens of a request, which is free
	list  action = "list"  // list the models
)

// route is where a request goes.
type route struct {
	// endpoint is the name of the endpoint.
	endpoint string
	dialect  model.Dialect
	action   action
	// path is the path of the dialect, below the endpoint's root.
	path string
	// model is the model in the path, for dialects that have it there.
	model string
}

// paths are the paths of all dialects except Google's, whose paths contain the model.
var paths = map[string]route{
	"messages":              {dialect: model.Messages, action: ask, path: "/v1/messages"},
	"messages/count_tokens": {dialect: model.Messages, action: count, path: "/v1/messages/count_tokens"},
	"chat/completions":      {dialect: model.Chat, action: ask, path: "/chat/completions"},
	"responses":             {dialect: model.Responses, action: ask, path: "/responses"},
}

// methods are the methods of Google's models.
var methods = map[string]action{"generateContent": ask, "streamGenerateContent": ask, "countTokens": count}

// parsePath returns where a request goes. With an error, the route has the dialect for the error, if it is known.
func parsePath(r *http.Request) (route, error) {
	rest := strings.TrimPrefix(r.URL.Path, Prefix)
	endpoint, path, _ := strings.Cut(rest, "/")
	version, below, _ := strings.Cut(path, "/")
	switch version {
	case "v1", "v1beta":
		path = below
	}
	at, known := paths[path]
	id, method, isMethod := strings.Cut(strings.TrimPrefix(path, "models/"), ":")
	switch {
	case known:
	case path == "models":
		at, known = route{dialect: model.Chat, action: list}, true
		if version == "v1beta" {
			at.dialect = model.Gemini
		}
	case isMethod && version == "v1beta" && strings.HasPrefix(path, "models/") && methods[method] != "":
		at, known = route{dialect: model.Gemini, action: methods[method], path: "/v1beta/" + path, model: id}, true
	}
	at.endpoint = endpoint
	if !known {
		return at, fault.New(fault.NotFound, "the gateway has no such path",
			"use "+Prefix+"NAME/v1/messages, /v1/chat/completions, /v1/responses, /v1/models or /v1beta/models/MODEL:streamGenerateContent, where NAME is a provider or a server of the house")
	}
	if want := map[bool]string{true: http.MethodGet, false: http.MethodPost}[at.action == list]; r.Method != want {
		return at, refusal{http.StatusMethodNotAllowed, fault.New(fault.Unimplemented, "the gateway does not support this method here", "use "+want)}
	}
	if at.dialect == model.Gemini && strings.HasSuffix(path, ":streamGenerateContent") && r.URL.Query().Get("alt") != "sse" {
		return at, fault.New(fault.Invalid, "the gateway streams events only", "add alt=sse to the query")
	}
	return at, nil
}

// speaks reports whether an endpoint speaks a dialect. Providers that have one of OpenAI's dialects have both.
func speaks(e model.Endpoint, d model.Dialect) bool {
	ofOpenAI := []model.Dialect{model.Chat, model.Responses}
	return e.Dialect == d || slices.Contains(ofOpenAI, e.Dialect) && slices.Contains(ofOpenAI, d) && e.Provider != model.Compatible
}

// read reads the body of a request, for which it holds memory until release is called.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, pass Pass) (body []byte, release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	size := r.ContentLength
	if size > maxBody {
		return nil, nil, tooLarge()
	} else if size < 0 {
		size = maxBody
	}
	lease, err := g.Memory.Take(ctx, pass.House, size)
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "too many large requests are in progress", "try again in a moment").WithReason(fault.Busy).Because(err)
	}
	var text bytes.Buffer
	text.Grow(int(min(max(r.ContentLength, 0), maxBody)) + bytes.MinRead)
	if _, err = text.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		lease.Release()
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			err = tooLarge()
		} else {
			err = fault.New(fault.Invalid, "the request could not be read to its end", "send it again").Because(err)
		}
		return nil, nil, err
	}
	lease.Shrink(int64(text.Len())) // not all requests declare their length
	return text.Bytes(), lease.Release, nil
}

func tooLarge() error {
	return refusal{http.StatusRequestEntityTooLarge, fault.Newf(fault.Exhausted, "send less", "a request has at most %d MiB", maxBody>>20).WithReason(fault.TooLarge)}
}

// head is the part of a request that the gateway parses.
type head struct {
	model string
	// remote names something that the provider would run or fetch for the request; empty if there is none.
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

func isRemote(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(remoteTools, func(p string) bool { return strings.HasPrefix(name, p) })
}

// readHead parses as much of a request as the gateway needs. It reads fields as providers do, by their exact names. It
// refuses a duplicate field, because the provider might read the other one.
func readHead(body []byte, at route) (h head, err error) {
	seen := map[string]bool{}
	whole := eachField(body, func(name string, value []byte) bool {
		if seen[name] {
			err = fault.Newf(fault.Invalid, "send it once", "the request has the field %q twice", entry.Clip(name, 40))
			return false
		}
		seen[name] = true
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
		return h, fault.Newf(fault.Invalid, "turn it off in the agent", "the gateway passes on nothing that the provider runs or fetches itself, such as %q", entry.Clip(h.remote, 40))
	}
	return h, nil
}

// eachField calls f with the fields of a JSON object until f returns false. It reports whether it reached the end of
// the object. It does not check the values of fields, because a conversation is long and its provider checks it.
func eachField(text []byte, f func(name string, value []byte) bool) bool {
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
		if at = skip(text, from); at == len(text) || text[from] != '"' {
			return false
		}
		var name string
		if json.Unmarshal(text[from:at], &name) != nil {
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

// blank returns where the white space that begins at a position ends.
func blank(text []byte, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
		at++
	}
	return at
}

// skip returns where the JSON value that begins at a position ends, or the end of the text if the value is incomplete.
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

// skipString returns where the string that begins at a position ends.
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
func (h *head) take(name string, value []byte) {
	empty := slices.Contains([]string{"null", "[]", "{}", "false"}, string(value))
	switch {
	case name == "model":
		_ = json.Unmarshal(value, &h.model) // a value that is not a string names no model
	case empty:
	case slices.Contains(remoteKeys, name), name == "background":
		h.remote = name
	case name == "tools":
		var tools []map[string]json.RawMessage
		if json.Unmarshal(value, &tools) != nil {
			h.remote = name
		}
		for _, t := range tools {
			var kind string
			_ = json.Unmarshal(t["type"], &kind) // nil or not a string: it is a function
			if isRemote(kind) {
				h.remote = kind
			}
			for key := range t { // Google's tools have names instead of types
				if key != "type" && isRemote(key) {
					h.remote = key
				}
			}
		}
	}
}
