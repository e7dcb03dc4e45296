package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func modelList(a *app) *cobra.Command {
	var house string
	cmd := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List where a house finds models, and which one is its default",
		Long: "List where a house finds models: through its own keys (the secrets ANTHROPIC_API_KEY, OPENAI_API_KEY,\n" +
			"OPENROUTER_API_KEY and GEMINI_API_KEY), at servers that it added, and what the installation offers. The\n" +
			"default, for bots that name no model, is marked. With NAME, list the models of one of them, as provider/model,\n" +
			"with what a million tokens of input and of output cost, in US dollars, and the context window in tokens.",
		Example: "  arbe model list anthropic",
		Args:    takes(0, 1, "at most one name, as arbe model list shows it"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			list, err := a.models(ctx, c, house)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return a.listModelsOf(list, args[0])
			}
			rows := make([]row, len(list.GetEndpoints()))
			for i, e := range list.GetEndpoints() {
				models := first(someOf(e.GetModels()), e.GetDefaultModel(), "-")
				note := e.GetProblem()
				if ref, is := strings.CutPrefix(list.GetDefaultModel(), e.GetName()+"/"); is {
					note = first(note, "default: "+ref)
				}
				rows[i] = row{e.GetName(), viewEndpoint(e, list), []string{e.GetName(), e.GetSource(), models, note}}
			}
			if err := a.list([]string{"NAME", "FROM", "MODELS", ""}, rows); err != nil {
				return err
			}
			if problem := list.GetProblem(); problem != "" {
				a.say("%s", entry.Printable(problem))
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.ValidArgsFunction = a.proposesFirst(func(ctx context.Context, c *arbe.Client) (found []thing, err error) {
		list, err := a.models(ctx, c, "")
		for _, e := range list.GetEndpoints() {
			found = append(found, thing{id: e.GetName()})
		}
		return found, err
	})
	return cmd
}

// someOf names a few models, and how many more there are.
func someOf(models []string) string {
	const shown = 3
	if len(models) <= shown+1 {
		return strings.Join(models, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(models[:shown], ", "), len(models)-shown)
}

// listModelsOf lists the models of one endpoint.
func (a *app) listModelsOf(list *arbev1.ListModelsResponse, name string) error {
	at := slices.IndexFunc(list.GetEndpoints(), func(e *arbev1.ModelEndpoint) bool { return e.GetName() == name })
	if at < 0 {
		return fault.Newf(fault.NotFound, "see the names with: arbe model list", "the house finds no models at %s", entry.PrintableLine(name))
	}
	e := list.GetEndpoints()[at]
	known := make(map[string]*arbev1.ModelInfo, len(e.GetInfos()))
	for _, i := range e.GetInfos() {
		known[i.GetId()] = i
	}
	var rows []row
	for _, id := range e.GetModels() {
		rows = append(rows, modelRow(e.GetName()+"/"+id, known[id], list.GetDefaultModel()))
	}
	if err := a.list([]string{"MODEL", "INPUT", "OUTPUT", "CONTEXT", ""}, rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		a.say("%s", entry.Printable(first(e.GetProblem(), "it is unknown which models "+e.GetName()+" has")))
	}
	return nil
}

// modelRow is the row of a model; info is nil if nothing is known about it.
func modelRow(ref string, info *arbev1.ModelInfo, house string) row {
	view := modelView{Model: ref, Default: ref == house, ContextWindow: info.GetContextWindow()}
	input, output, window, note := "-", "-", "-", ""
	if p := info.GetPrice(); p != nil {
		view.InputUSD, view.OutputUSD = &p.InputUsd, &p.OutputUsd
		input, output = fmt.Sprintf("$%g", p.InputUsd), fmt.Sprintf("$%g", p.OutputUsd)
	}
	if view.ContextWindow > 0 {
		window = fmt.Sprint(view.ContextWindow)
	}
	if view.Default {
		note = "default"
	}
	return row{ref, view, []string{ref, input, output, window, note}}
}

type modelView struct {
	Model         string   `json:"model"`
	Default       bool     `json:"default"`
	InputUSD      *float64 `json:"input_usd,omitempty"`
	OutputUSD     *float64 `json:"output_usd,omitempty"`
	ContextWindow int64    `json:"context_window,omitempty"`
}
