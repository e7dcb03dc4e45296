package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// Prefix is the path prefix of the gateway. The name of an endpoint follows it.
const Prefix = "/api/model/"

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
	if version == "v1" || version == "v1beta" {
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
