package web

import arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"

// threadModelView is the page on which a thread gets a model of its own. Model and Think are the values of the form.
type threadModelView struct {
	Layout       layout
	Thread       *arbev1.Thread
	Models       *arbev1.ListModelsResponse
	Model, Think string
	Problems     problems
}

func (v threadModelView) pick() modelPick {
	return modelPick{Name: "model", Label: "Model", Chosen: v.Model, None: "Each bot’s own", Groups: groupsOf(v.Models), Problems: v.Problems, Help: pricesHelp}
}

func threadModelPath(thread string) string { return threadPath(thread) + "/model" }

// threadModelWords says which model a thread sets.
func threadModelWords(t *arbev1.Thread) string {
	if t.Model == "" {
		return "each bot’s own"
	}
	return clip(t.Model, maxWord)
}
