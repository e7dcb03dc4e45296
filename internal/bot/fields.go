package bot

import (
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// MaxName limits a name, in characters.
const MaxName = 100

// cleanModel validates a model, written as provider/model, and trims white space. It may be empty. Whether the model exists
// is checked only when it is used, because a house may add providers later.
func cleanModel(model string) (string, error) {
	model = strings.TrimSpace(model)
	if model == "" {
		return "", nil
	}
	provider, id, found := strings.Cut(model, "/")
	switch next := "write provider/model, such as anthropic/claude-sonnet-4-5"; {
	case len(model) > 200:
		return "", fault.New(fault.Invalid, "model: at most 200 bytes", next)
	case strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fault.New(fault.Invalid, "model: it has a space or another character that model names cannot have", next)
	case !found || provider == "":
		return "", fault.Newf(fault.Invalid, next, "model: %q does not say which provider it is from", model)
	case id == "":
		return "", fault.Newf(fault.Invalid, next, "model: %q does not say which of the provider's models", model)
	}
	return model, nil
}

// CleanTools returns the names of tools in the order of [entry.Tools], each once. If there is no such tool, the error is a
// [fault.Invalid] that names the field.
func CleanTools(field string, tools []string) ([]string, error) {
	for _, tool := range tools {
		if !slices.Contains(entry.Tools, tool) {
			return nil, fault.Newf(fault.Invalid, "use some of "+strings.Join(entry.Tools, ", "), "%s: there is no tool %.60q", field, tool)
		}
	}
	clean := []string{} // not nil, which the database would store as null
	for _, tool := range entry.Tools {
		if slices.Contains(tools, tool) {
			clean = append(clean, tool)
		}
	}
	return clean, nil
}

// set sets a field unless to is nil.
func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}
