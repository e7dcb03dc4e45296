package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// anotherModel is the value of a choice of models when the reader writes the model in the field below it.
	anotherModel = "other"
	// maxChoices limits the models of one endpoint in a choice. OpenRouter has some 400.
	maxChoices = 500
)

// modelPick is a field in which a model is chosen, from those of the house or by its name.
type modelPick struct {
	// Name is the name of the field in its form, Chosen its value, and None what it means to choose no model.
	Name, Label, Chosen, None, Help string
	Groups                          []modelGroup
	Problems                        problems
	Disabled                        bool
}

// modelGroup has the models of one endpoint.
type modelGroup struct {
	Endpoint string
	Choices  []modelChoice
}

// modelChoice is a model, as provider/model, and what a reader sees of it.
type modelChoice struct{ Ref, Text string }

// listed reports whether the chosen model is one of the choices, or no model. Another one is shown in the field for its name.
func (p modelPick) listed() bool {
	return p.Chosen == "" || slices.ContainsFunc(p.Groups, func(g modelGroup) bool {
		return slices.ContainsFunc(g.Choices, func(c modelChoice) bool { return c.Ref == p.Chosen })
	})
}

// other returns the value of the field for the name of another model.
func (p modelPick) other() string {
	if p.listed() {
		return ""
	}
	return p.Chosen
}

// pickedModel returns the model that a form chose, as provider/model; empty if none.
func pickedModel(r *http.Request, field string) string {
	model := strings.TrimSpace(r.PostFormValue(field))
	if model == anotherModel {
		model = strings.TrimSpace(r.PostFormValue(field + "_other"))
	}
	return model
}

// groupsOf returns the models of a house by endpoint, with their prices and context windows.
func groupsOf(models *arbev1.ListModelsResponse) (groups []modelGroup) {
	for _, e := range models.GetEndpoints() {
		ids := e.Models
		if len(ids) == 0 && e.DefaultModel != "" {
			ids = []string{e.DefaultModel}
		}
		known := make(map[string]*arbev1.ModelInfo, len(e.Infos))
		for _, i := range e.Infos {
			known[i.Id] = i
		}
		g := modelGroup{Endpoint: e.Name}
		for _, id := range ids[:min(len(ids), maxChoices)] {
			g.Choices = append(g.Choices, modelChoice{Ref: e.Name + "/" + id, Text: strings.Join(append([]string{clip(id, maxWord)}, factsOf(known[id])...), " · ")})
		}
		if len(g.Choices) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// factsOf returns the price and the context window of a model: "$5 in, $25 out" and "1M context".
func factsOf(i *arbev1.ModelInfo) (facts []string) {
	if p := i.GetPrice(); p != nil && p.InputUsd == 0 && p.OutputUsd == 0 {
		facts = append(facts, "free")
	} else if p != nil {
		facts = append(facts, dollars(p.InputUsd)+" in, "+dollars(p.OutputUsd)+" out")
	}
	if n := i.GetContextWindow(); n > 0 {
		facts = append(facts, thousands(n)+" context")
	}
	return facts
}

// dollars returns a price: "$3", "$0.50", "$0.075".
func dollars(n float64) string {
	text := strconv.FormatFloat(n, 'f', -1, 64)
	if _, cents, has := strings.Cut(text, "."); has && len(cents) == 1 {
		text += "0"
	}
	return "$" + text
}

// thousands rounds a number of tokens: "200k", "1M", "1.05M".
func thousands(n int64) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(float64((n+5e3)/1e4)/100, 'f', -1, 64) + "M"
	case n >= 1e3:
		return decimal((n+500)/1e3) + "k"
	}
	return decimal(n)
}

// factsOfModel returns the price and the context window of a model of a house, for a line below its name; empty if they are not
// known.
func factsOfModel(models *arbev1.ListModelsResponse, ref string) string {
	for _, e := range models.GetEndpoints() {
		id, of := strings.CutPrefix(ref, e.Name+"/")
		if !of {
			continue
		}
		for _, i := range e.Infos {
			if i.Id == id {
				return strings.Join(factsOf(i), " · ")
			}
		}
	}
	return ""
}
