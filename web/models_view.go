package web

import (
	"strconv"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// modelsView is the page of a house's models. It never contains a key: a form that failed comes back without its key.
type modelsView struct {
	Layout layout
	Models *arbev1.ListModelsResponse
	// Secret, Name, Address and Model are the forms' values. Each form has its own errors.
	Secret, Name, Address, Dialect, Model, Fallbacks  string
	KeyWrong, ServerWrong, ChoiceWrong, FallbackWrong problems
	// Set is the endpoint, if any, whose key or address was just set. Untried reports that the form asked to skip the trial.
	Set     *arbev1.ModelEndpoint
	Untried bool
}

// dialects are the dialects of servers, in the service's words. The first stands for an unknown dialect.
var dialects = []struct{ Word, Label string }{
	{"", "What the address shows"}, {"chat", "OpenAI’s chat/completions"}, {"messages", "Anthropic’s messages"}, {"responses", "OpenAI’s responses"}, {"gemini", "Google’s Gemini"},
}

// someModels names a few models, and how many more there are.
func someModels(ids []string) string {
	const shown = 6
	if len(ids) <= shown+1 {
		return strings.Join(ids, ", ")
	}
	return strings.Join(ids[:shown], ", ") + " and " + strconv.Itoa(len(ids)-shown) + " more"
}

// whatWasSet says who can use the endpoint that was just set.
func (v modelsView) whatWasSet() string {
	tried := v.Set.Name + " was tried"
	switch n := len(v.Set.Models); {
	case v.Untried:
		tried = "It was not tried"
	case n == 1:
		tried += ": 1 model"
	case n > 1:
		tried += ": " + strconv.Itoa(n) + " models"
	}
	return tried + ". The bots of " + v.Layout.House.Name + " can use it for all members."
}

// providerKeys are the providers whose keys the form accepts, with the names of their secrets.
var providerKeys = []struct{ Secret, Provider string }{
	{"ANTHROPIC_API_KEY", "Anthropic"}, {"OPENAI_API_KEY", "OpenAI"}, {"OPENROUTER_API_KEY", "OpenRouter"}, {"GEMINI_API_KEY", "Google Gemini"},
}

// refs returns the known models of the house, as provider/model.
func (v modelsView) refs() []string { return refsOf(v.Models) }

func refsOf(models *arbev1.ListModelsResponse) (refs []string) {
	for _, e := range models.Endpoints {
		ids := e.Models
		if len(ids) == 0 && e.DefaultModel != "" {
			ids = []string{e.DefaultModel}
		}
		for _, id := range ids[:min(len(ids), 100)] {
			refs = append(refs, e.Name+"/"+id)
		}
	}
	return refs
}
