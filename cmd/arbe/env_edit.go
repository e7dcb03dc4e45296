package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envEdit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "edit ENV",
		Short: "Edit an environment in your editor, or replace it from stdin",
		Long: "Edit an environment in $VISUAL or $EDITOR (default vi) or, when stdin is not a terminal, replace it with what\n" +
			"stdin has, YAML or JSON as arbe env show prints it. Existing sandboxes do not change.",
		Example: "  arbe env edit go\n" +
			"  arbe env show go | sed s/1.25/1.26/ | arbe env edit go",
		Args:              takes(1, 1, "one environment, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			e, err := a.getEnvironment(ctx, c, args[0])
			if err != nil {
				return err
			}
			text, err := environmentFile{e.GetName(), recipeOf(e.GetConfig())}.text()
			if err != nil {
				return err
			}
			return a.edit(ctx, edited{
				noun: "env", verb: "arbe env edit " + e.GetId(), text: text,
				change: func(from io.Reader) error {
					f, err := readEnvironment(from)
					if err != nil {
						return err
					}
					return a.replaceEnvironment(ctx, c, e, f)
				},
				unchanged: func() error {
					return a.show(e.GetId(), viewEnvironment(e), func() string { return "unchanged " + e.GetId() })
				},
			})
		}),
	}
}

// replaceEnvironment gives an environment the name and config of a file. If the file has no name, the name stays.
func (a *app) replaceEnvironment(ctx context.Context, c *arbe.Client, e *arbev1.Environment, f environmentFile) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	req := &arbev1.UpdateEnvironmentRequest{Id: e.GetId(), Etag: e.GetEtag(), Config: config}
	if f.Name != "" {
		req.Name = &f.Name
	}
	updated, err := c.Environments.UpdateEnvironment(ctx, req)
	if err != nil {
		return err
	}
	e = updated.GetEnvironment()
	return a.show(e.GetId(), viewEnvironment(e), func() string { return fmt.Sprintf("changed %s (%s)", e.GetId(), entry.PrintableLine(e.GetName())) })
}
