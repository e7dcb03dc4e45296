package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func sandboxLogs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "logs SANDBOX",
		Short: "Show how a sandbox was built, and which of its files are saved",
		Long: "Show the steps of building a sandbox, each with its time and the end of its output, and which of its files are\n" +
			"saved.",
		Args:              takes(1, 1, "the id of one sandbox"),
		ValidArgsFunction: a.proposesFirst(a.sandboxes),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, sandboxKind, "", args[0])
			if err != nil {
				return err
			}
			got, err := c.Sandboxes.GetSandboxLog(ctx, &arbev1.GetSandboxLogRequest{Id: id})
			if err != nil {
				return err
			}
			v := viewSandboxLog(id, got)
			return a.show(id, v, func() string { return v.text(a) })
		}),
	}
}

type sandboxLogView struct {
	ID      string            `json:"id"`
	Steps   []sandboxStepView `json:"steps"`
	UsedAt  *time.Time        `json:"used_at,omitempty"`
	SavedAt *time.Time        `json:"saved_at,omitempty"`
	Saved   []savedPartView   `json:"saved"`
}

type sandboxStepView struct {
	Name       string `json:"name"`
	ExitCode   int32  `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	Output     string `json:"output,omitempty"`
}

type savedPartView struct {
	Folder     string `json:"folder"`
	Commit     string `json:"commit,omitempty"`
	Files      int32  `json:"files"`
	ArtifactID string `json:"artifact_id,omitempty"`
	Missing    string `json:"missing,omitempty"`
}

func viewSandboxLog(id string, l *arbev1.GetSandboxLogResponse) sandboxLogView {
	v := sandboxLogView{ID: id, Steps: []sandboxStepView{}, Saved: []savedPartView{}, UsedAt: export.Optional(l.GetUsedAt()), SavedAt: export.Optional(l.GetSavedAt())}
	for _, s := range l.GetSteps() {
		v.Steps = append(v.Steps, sandboxStepView{Name: s.GetName(), ExitCode: s.GetExitCode(), DurationMS: s.GetDurationMs(), Output: s.GetOutput()})
	}
	for _, p := range l.GetSaved() {
		v.Saved = append(v.Saved, savedPartView{Folder: p.GetFolder(), Commit: p.GetCommit(), Files: p.GetFiles(), ArtifactID: p.GetArtifactId(), Missing: p.GetMissing()})
	}
	return v
}

func (v sandboxLogView) text(a *app) string {
	var b strings.Builder
	if len(v.Steps) == 0 {
		b.WriteString("how it was built is not recorded\n")
	}
	for _, s := range v.Steps {
		fmt.Fprintf(&b, "%s  %.1fs", entry.PrintableLine(s.Name), float64(s.DurationMS)/1000)
		if s.ExitCode != 0 {
			fmt.Fprintf(&b, "  failed (exit code %d)", s.ExitCode)
		}
		b.WriteByte('\n')
		if s.Output != "" {
			b.WriteString("    " + strings.ReplaceAll(entry.Printable(s.Output), "\n", "\n    ") + "\n")
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if v.SavedAt == nil {
		fmt.Fprintf(w, "its files have not been saved yet\n")
	} else {
		fmt.Fprintf(w, "its files were saved %s\n", a.when(*v.SavedAt))
	}
	for _, p := range v.Saved {
		fmt.Fprintf(w, "%s\t%s\t%d files\t%s\t%s\n", entry.PrintableLine(p.Folder), entry.PrintableLine(p.Commit), p.Files, p.ArtifactID, entry.PrintableLine(p.Missing))
	}
	w.Flush()
	return b.String()
}
