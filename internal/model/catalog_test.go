package model_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"

	"github.com/arbe-dev/arbe/internal/model"
)

var writeCatalog = flag.Bool("catalog.write", false, "write catalog.json instead of comparing it")

func TestCatalogIsThePartOfCatwalksTablesThatArbeUses(t *testing.T) {
	t.Parallel()
	ours := map[catwalk.InferenceProvider]model.Provider{
		catwalk.InferenceProviderAnthropic: model.Anthropic, catwalk.InferenceProviderOpenAI: model.OpenAI,
		catwalk.InferenceProviderGemini: model.Google, catwalk.InferenceProviderOpenRouter: model.OpenRouter,
	}
	providers := map[model.Provider]model.Catalogued{}
	for _, p := range embedded.GetAll() {
		if name, known := ours[p.ID]; known {
			var kept model.Catalogued
			if text, err := json.Marshal(p); err != nil {
				t.Fatal(err)
			} else if err := json.Unmarshal(text, &kept); err != nil {
				t.Fatal(err)
			}
			if len(kept.Models) == 0 || kept.Large == "" || kept.Small == "" {
				t.Errorf("catwalk has no models of %s", name)
			}
			providers[name] = kept
		}
	}
	if len(providers) != len(ours) {
		t.Errorf("catwalk has %d of %d providers", len(providers), len(ours))
	}
	text, err := json.Marshal(providers)
	if err != nil {
		t.Fatal(err)
	}
	file := strings.ReplaceAll(string(text), `{"id":`, "\n"+`{"id":`) + "\n" // a line for each model, for whoever reads a change
	if *writeCatalog {
		if err := os.WriteFile("catalog.json", []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if kept, err := os.ReadFile("catalog.json"); err != nil || string(kept) != file {
		t.Errorf("catalog.json is not what catwalk says (%v): run make generate", err)
	}
}
