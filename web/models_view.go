package web

import (
	"slices"
	"strconv"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// modelsView is the page of a house's models. It never contains a key: a form that failed comes back without its key.
type modelsView struct {
	Layout layout
	Models *arbev1.ListModelsResponse
	// Secret, Name, Address and Model are the forms' values. Each form has its own errors.
	Secret, Name, Address, Dialect, Model, Fallback   string
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

// pricesHelp explains the prices in a choice of models.
const pricesHelp = "Prices are for a million tokens that it reads and writes; the context is how many tokens it can take in at once."

// houseDefault says which model a bot without one of its own uses.
func houseDefault(models *arbev1.ListModelsResponse) string {
	if models.GetDefaultModel() == "" {
		return "The house’s default"
	}
	return "The house’s default: " + clip(models.GetDefaultModel(), maxWord)
}

// defaultPick is the field in which the house's default model is chosen.
func (v modelsView) defaultPick() modelPick {
	return modelPick{Name: "model", Label: "Model", Chosen: v.Model, None: "The operator’s choice", Groups: groupsOf(v.Models), Problems: v.ChoiceWrong, Help: pricesHelp}
}

// fallbackPick is the field in which one more fallback model is chosen.
func (v modelsView) fallbackPick() modelPick {
	groups := groupsOf(v.Models)
	for i := range groups {
		groups[i].Choices = slices.DeleteFunc(groups[i].Choices, func(c modelChoice) bool { return slices.Contains(v.Models.FallbackModels, c.Ref) })
	}
	groups = slices.DeleteFunc(groups, func(g modelGroup) bool { return len(g.Choices) == 0 })
	return modelPick{Name: "add", Label: "Add a model", Chosen: v.Fallback, None: "Choose a model", Groups: groups, Problems: v.FallbackWrong, Help: pricesHelp}
}

// without returns the fallback models but for one, in the form in which the form sends them.
func (v modelsView) without(ref string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(v.Models.FallbackModels), func(m string) bool { return m == ref }), " ")
}
