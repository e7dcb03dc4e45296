package model

import (
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Ref names a model: "anthropic/claude-sonnet-4-6", "openrouter/qwen/qwen3-coder".
type Ref struct {
	// Endpoint is a provider, or the name of a configured endpoint.
	Endpoint string
	// Model is the id of the model there. It may contain slashes and colons.
	Model string
}

// String returns the ref in the form that [ParseRef] reads; the empty string for the zero Ref.
func (r Ref) String() string {
	if r == (Ref{}) {
		return ""
	}
	return r.Endpoint + "/" + r.Model
}

var modelID = lazyregexp.New(`^[A-Za-z0-9@~][A-Za-z0-9@._:/~+-]{0,199}$`)

// ParseRef reads a model ref: a provider or one of the names of configured endpoints, a slash, and the model's id. The
// error is a [fault.Invalid] that says what is wrong.
func ParseRef(text string, names ...string) (Ref, error) {
	text = strings.TrimSpace(text)
	endpoint, id, found := strings.Cut(text, "/")
	known := func(name string) bool {
		return slices.Contains(Providers, Provider(name)) || slices.Contains(names, name)
	}
	example := "write provider/model, such as anthropic/" + defaultModel(Anthropic)
	switch {
	case text == "":
		return Ref{}, fault.New(fault.Invalid, "model: it is empty", example)
	case !found || endpoint == "":
		return Ref{}, fault.Newf(fault.Invalid, example, "model: %q does not say which provider it is from", entry.Clip(text, 80))
	case id == "":
		return Ref{}, fault.Newf(fault.Invalid, example, "model: %q does not say which of the provider's models", entry.Clip(text, 80))
	case !known(endpoint):
		var all []string
		for _, p := range Providers {
			all = append(all, string(p))
		}
		return Ref{}, fault.Newf(fault.Invalid, "use one of "+strings.Join(append(all, names...), ", "), "model: there is no provider %q", entry.Clip(endpoint, 80))
	case !modelID.MatchString(id):
		return Ref{}, fault.Newf(fault.Invalid, "write the id as the provider does, without spaces", "model: %q is not the id of a model", entry.Clip(id, 80))
	}
	return Ref{endpoint, id}, nil
}
