package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// exitCannotBuild is the exit code of arbe env diagnose for an environment that cannot build a sandbox.
const exitCannotBuild = 10

// buildCheckView is one step of a diagnosis, as programs see it.
type buildCheckView struct {
	Name       string `json:"name"`
	Result     string `json:"result"`
	DurationMS int64  `json:"duration_ms"`
	Message    string `json:"message,omitempty"`
	Next       string `json:"next,omitempty"`
	Output     string `json:"output,omitempty"`
}

func envDiagnose(a *app) *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "diagnose [ENV]",
		Short: "Check whether an environment can build a sandbox now",
		Long: "Check whether an environment can build a sandbox now. It builds one, checks from inside what it can reach, and\n" +
			"deletes it. Each step is printed with its time and what to do about it. Without ENV, the house's default is\n" +
			"checked. It exits with 10 if a step failed.\n\n" +
			"The sandbox is always built from the beginning. Others begin with the files of an earlier one, as they were after its\n" +
			"setup, until the environment, a commit or a secret of the setup changes. With --rebuild, they begin with those of now.",
		Args:              takes(0, 1, "at most one environment, by id or name"),
		ValidArgsFunction: a.proposesFirst(a.environments),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.environmentOrDefault(ctx, c, firstOf(args))
			if err != nil {
				return err
			}
			checks, err := a.diagnose(ctx, c, id, rebuild)
			if err != nil {
				return err
			}
			failed := ""
			for _, check := range checks {
				if check.Result == "failed" {
					failed = first(failed, check.Name)
				}
			}
			if a.json {
				err = a.printJSON(environmentCheckView{id, failed == "", checks})
			}
			if err == nil && failed != "" {
				return exitCode(exitCannotBuild)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "forget what is cached of the environment; later sandboxes begin with what is built now")
	return cmd
}

// environmentOrDefault returns the id of the environment that a person named, or of the house's default.
func (a *app) environmentOrDefault(ctx context.Context, c *arbe.Client, ref string) (string, error) {
	if ref != "" {
		return a.find(ctx, c, environmentKind, "", ref)
	}
	in, err := a.inHouse(ctx, c, "")
	if err != nil {
		return "", err
	}
	got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: in})
	return got.GetHouse().GetDefaultEnvironmentId(), err
}

// diagnose returns the steps of a diagnosis. For people, it prints each step when the step ends.
func (a *app) diagnose(ctx context.Context, c *arbe.Client, id string, rebuild bool) (checks []buildCheckView, err error) {
	stream, err := c.Environments.DiagnoseEnvironment(ctx, &arbev1.DiagnoseEnvironmentRequest{Id: id, Rebuild: rebuild})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		e := stream.Msg().GetCheck()
		if e == nil {
			continue
		}
		v := buildCheckView{e.GetName(), arbev1.Word(e.GetResult()), e.GetDurationMs(), e.GetMessage(), e.GetNext(), e.GetOutput()}
		checks = append(checks, v)
		if a.json || a.quiet {
			continue
		}
		if _, err := fmt.Fprint(a.out, v.text()); err != nil {
			return nil, err
		}
	}
	return checks, stream.Err()
}

// text formats a step for people: a line and, if the step failed, what to do and the script's output.
func (v buildCheckView) text() string {
	took := (time.Duration(v.DurationMS) * time.Millisecond).String()
	if v.Result == "skipped" {
		took = "-"
	}
	text := strings.TrimRight(fmt.Sprintf("%-8s  %-12s  %8s  %s", v.Result, entry.PrintableLine(v.Name), took, entry.PrintableLine(v.Message)), " ") + "\n"
	if v.Result != "failed" && v.Result != "warning" {
		return text
	}
	if v.Next != "" {
		text += "          next: " + entry.PrintableLine(v.Next) + "\n"
	}
	if v.Result == "failed" && v.Output != "" {
		text += "          | " + strings.ReplaceAll(strings.TrimRight(entry.Printable(v.Output), "\n"), "\n", "\n          | ") + "\n"
	}
	return text
}

type environmentCheckView struct {
	EnvironmentID string           `json:"environment_id"`
	OK            bool             `json:"ok"`
	Checks        []buildCheckView `json:"checks"`
}
