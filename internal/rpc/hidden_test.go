package rpc

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

func TestTheAddressesOfTheInstallationsModelsAreHidden(t *testing.T) {
	t.Parallel()
	found := model.Found{
		Endpoint: model.Endpoint{Name: "ollama", BaseURL: "http://10.1.2.3:11434/v1", Shared: true},
		Source:   "OLLAMA_HOST",
		Problem:  fault.New(fault.Unavailable, "dial tcp 10.1.2.3:11434: connection refused", "look at http://10.1.2.3:11434"),
	}
	if e := wireEndpoint(found); strings.Contains(e.String(), "10.1.2.3") || e.GetProblem() == "" {
		t.Errorf("a house sees %s", e)
	}
	found.Own = true
	found.Endpoint.BaseURL = "https://ada:hunter2@models.example/v1?key=hunter2"
	if e := wireEndpoint(found); e.GetBaseUrl() != "https://models.example/v1" {
		t.Errorf("of its own server a house sees %s", e)
	}
}
