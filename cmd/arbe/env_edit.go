package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envEdit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "edit ENV",
		Short: "Edit an environment in your editor, or replace it from stdin",
		Long: "Edit an environment in $VISUAL or $EDITOR (default vi) or, when stdin is not a terminal, replace it with what\n" +
			"stdin has, YAML or JSON as arbe env show prints it. Sandboxes that exist stay as they are.",
		Example: "  arbe env edit go\n" +
			"  arbe env show go | sed s/1.25/1.26/ | arbe env edit go",
		Args:              takes(1, 1, "one environment, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			e, err := a.getEnvironment(ctx, c, args[0])
			if err != nil {
				return err
			}
			// Ctrl-C must not cancel the change, because in an editor it is meant for the editor.
			change := func(f environmentFile) error { return a.replaceEnvironment(context.WithoutCancel(ctx), c, e, f) }
			if isTerminal(a.in) {
				return a.edit(e, change)
			}
			f, err := readEnvironment(a.in)
			if err != nil {
				return err
			}
			return change(f)
		}),
	}
}

// replaceEnvironment gives an environment the name and config of a file. A file without a name leaves the name.
func (a *app) replaceEnvironment(ctx context.Context, c *arbe.Client, e *arbev1.Environment, f environmentFile) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	req := &arbev1.UpdateEnvironmentRequest{Id: e.GetId(), Config: config}
	if f.Name != "" {
		req.Name = &f.Name
	}
	updated, err := c.Environments.UpdateEnvironment(ctx, req)
	if err != nil {
		return err
	}
	e = updated.GetEnvironment()
	return a.show(e.GetId(), viewEnvironment(e), func() string { return fmt.Sprintf("changed %s (%s)", e.GetId(), oneLine(e.GetName())) })
}

// edit opens an environment in an editor, and hands on what the person made of it. What cannot be used stays in its
// file, so that no work is lost.
func (a *app) edit(e *arbev1.Environment, change func(environmentFile) error) error {
	before, err := environmentFile{e.GetName(), recipeOf(e.GetConfig())}.text()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "arbe-env-*.yaml")
	if err == nil {
		_, err = file.Write(before)
		file.Close()
	}
	if err != nil {
		return fault.New(fault.Precondition, "cannot write a file to edit", "set TMPDIR to a directory that you may write").Because(err)
	}
	editor := first(a.getenv("VISUAL"), a.getenv("EDITOR"), "vi")
	// A shell runs the editor, because the variable may also have arguments.
	run := exec.Command("sh", "-c", editor+` "$1"`, "editor", file.Name())
	run.Stdin, run.Stdout, run.Stderr = a.in, a.out, a.err
	if err := run.Run(); err != nil {
		if now, readErr := os.ReadFile(file.Name()); readErr == nil && bytes.Equal(before, now) {
			os.Remove(file.Name())
		} else {
			a.say("what you wrote is in %s", file.Name())
		}
		return fault.Newf(fault.Canceled, "set EDITOR to an editor, or pipe the environment in", "the editor %s failed; nothing was changed", editor).Because(err)
	}
	after, err := os.ReadFile(file.Name())
	if err == nil && bytes.Equal(before, after) {
		os.Remove(file.Name())
		a.say("nothing was changed")
		return a.show(e.GetId(), viewEnvironment(e), func() string { return "unchanged " + e.GetId() })
	}
	var f environmentFile
	if err == nil {
		f, err = readEnvironment(bytes.NewReader(after))
	}
	if err == nil {
		err = change(f)
	}
	if err != nil {
		a.say("what you wrote is in %s; correct it, and use it with: arbe env edit %s < %[1]s", file.Name(), e.GetId())
		return err
	}
	os.Remove(file.Name())
	return nil
}
