package web_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// priced has three models: one with a price, one that is free, and one of which nothing is known.
func priced() *arbev1.ListModelsResponse {
	return &arbev1.ListModelsResponse{
		DefaultModel: "anthropic/opus", ChosenModel: "lab/odd", FallbackModels: []string{"ollama/tiny"},
		Endpoints: []*arbev1.ModelEndpoint{
			{Name: "anthropic", Models: []string{"opus", "next"}, Infos: []*arbev1.ModelInfo{{Id: "opus", ContextWindow: 1_000_000, Price: &arbev1.ModelPrice{InputUsd: 5, OutputUsd: 25.5}}}},
			{Name: "ollama", DefaultModel: "tiny", Infos: []*arbev1.ModelInfo{{Id: "tiny", ContextWindow: 32_768, Price: &arbev1.ModelPrice{}}}},
		},
	}
}

func TestModelsAreChosenFromAListWithPrices(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.models = priced()
	_, page := ada(t, f).get("/houses/home/models")
	contains(t, page,
		`<option value="anthropic/opus">opus · $5 in, $25.50 out · 1M context</option>`,
		`<option value="anthropic/next">next</option>`,
		`<option value="ollama/tiny">tiny · free · 33k context</option>`,
		`<option value="other" selected>`, `name="model_other" value="lab/odd"`, // the house's choice is not listed
		`Bots that name no model use <b>anthropic/opus</b>`)
}

func TestAnotherModelCanBeNamed(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.models = priced()
	f.models.ChosenModel = "anthropic/opus"
	b := newTab(t, f.start(t))
	b.open("/houses/home/models")
	const shown = "document.querySelector('[name=model_other]').checkVisibility()"
	b.until("the chosen model, without a field for another", "document.querySelector('#f-model').value === 'anthropic/opus' && !"+shown)
	b.accessibleEverywhere("the models of a house")
	eval[int](b, "document.querySelector('#default-model').scrollIntoView(), 1")
	b.pictures("models")
	b.do(chromedp.SetValue(chromedp.CSS("#f-model"), "other"))
	b.until("the field", shown)
}
