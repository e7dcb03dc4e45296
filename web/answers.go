package web

import (
	"context"
	"net/http"
	"slices"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxPreview limits how many bytes of an unfinished text are examined to find out who will answer it.
const maxPreview = 60 << 10

// answers reports who will answer the reader's unfinished text. The script asks while they write. The same code decides when
// the text is sent.
func (a *app) answers(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	words, err := a.answersTo(r.Context(), r.PathValue("thread"), textOf(r), r.PostFormValue("reply"))
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, answersLine(words))
}

// answersTo describes who answers a text in a thread.
func (a *app) answersTo(ctx context.Context, thread, text, reply string) (string, error) {
	res, err := a.services.entries.WhoAnswers(ctx, &arbev1.WhoAnswersRequest{ThreadId: thread, Text: clip(text, maxPreview), ReplyTo: reply})
	return answersWords(res.GetAnswerers()), err
}

// answeringBots returns the bots that can answer in a thread, out of the people and bots of a house.
func answeringBots(people []*arbev1.Agent) []*arbev1.Agent {
	return slices.DeleteFunc(slices.Clone(people), func(p *arbev1.Agent) bool { return p.Handle == "" || p.Runtime != "arbe" })
}
