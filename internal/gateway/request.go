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

// action is what a request wants.
type action string

const (
	ask   action = "ask"   // an answer of a model
	count action = "count" // how many tokens a request has, which costs nothing
	list  action = "list"  // the models
)

// place is where a request goes.
type place struct {
	// endpoint is the name of the endpoint.
	endpoint string
	dialect  model.Dialect
	action   action
	// path is the path of the dialect, below the endpoint's root.
	path string
	// model is the model that the path names, in dialects that have it there.
	model string
}

// paths are the paths of the dialects but Google's, whose paths have the model.
var paths = map[string]place{
	"messages":              {dialect: model.Messages, action: ask, path: "/v1/messages"},
	"messages/count_tokens": {dialect: model.Messages, action: count, path: "/v1/messages/count_tokens"},
	"chat/completions":      {dialect: model.Chat, action: ask, path: "/chat/completions"},
	"responses":             {dialect: model.Responses, action: ask, path: "/responses"},
}

// methods are the methods of Google's models.
var methods = map[string]action{"generateContent": ask, "streamGenerateContent": ask, "countTokens": count}

// parsePath returns where a request goes. With an error, the place has the dialect in which to say so, as far as that is known.
func parsePath(r *http.Request) (place, error) {
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
		at, known = place{dialect: model.Chat, action: list}, true
		if version == "v1beta" {
			at.dialect = model.Gemini
		}
	case isMethod && version == "v1beta" && strings.HasPrefix(path, "models/") && methods[method] != "":
		at, known = place{dialect: model.Gemini, action: methods[method], path: "/v1beta/" + path, model: id}, true
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

// speaks reports whether an endpoint speaks a dialect. The providers that have one of OpenAI's dialects have both.
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
		return nil, nil, fault.New(fault.Unavailable, "too many large requests are in progress", "try again in a moment").Because(err)
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
	lease.Shrink(int64(text.Len())) // most requests say how long they are, but not all
	return text.Bytes(), lease.Release, nil
}

func tooLarge() error {
	return refusal{http.StatusRequestEntityTooLarge, fault.Newf(fault.Exhausted, "send less", "a request has at most %d MiB", maxBody>>20)}
}

// head is what the gateway reads of a request.
type head struct {
	model string
	// remote names something that the provider would run or fetch for the request; empty if there is nothing such.
	remote string
}

// remoteKeys are the fields of requests that have the provider do more than answer, and remoteTools the beginnings of such
// tools' types and, in Google's dialect, their names. What they do costs more than tokens, and they reach the internet where
// the sandbox may not.
var (
	remoteKeys  = []string{"mcp_servers", "web_search_options", "plugins"}
	remoteTools = []string{"web_search", "web_fetch", "code_execution", "mcp", "file_search", "code_interpreter", "image_generation", "openrouter:",
		"google", "urlcontext", "url_context", "codeexecution", "enterprise"}
)

func isRemote(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(remoteTools, func(p string) bool { return strings.HasPrefix(name, p) })
}

// readHead reads a request as far as the gateway has to. Fields are read as providers read them: by their exact names. One that
// comes twice is refused, because the provider might read the other.
func readHead(body []byte, at place) (h head, err error) {
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

// eachField calls f with the fields of a JSON object, until f returns false. It reports whether it came to the end of the object.
// It does not check what is within a field: a conversation is long, and its provider checks it.
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

// skip returns where the JSON value that begins at a position ends; the end of the text if it does not.
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

// take takes a field of a request.
func (h *head) take(name string, value []byte) {
	empty := slices.Contains([]string{"null", "[]", "{}", "false"}, string(value))
	switch {
	case name == "model":
		_ = json.Unmarshal(value, &h.model) // what is no text names no model
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
			_ = json.Unmarshal(t["type"], &kind) // nil or no text: it is a function
			if isRemote(kind) {
				h.remote = kind
			}
			for key := range t { // Google's tools have no type
				if key != "type" && isRemote(key) {
					h.remote = key
				}
			}
		}
	}
}
