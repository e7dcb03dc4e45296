package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseRetention(a *app) *cobra.Command {
	var house string
	var threads, artifacts, threadsMB, artifactsMB int32
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show or set when a house's threads and artifacts are deleted",
		Long: "Show or set when threads and artifacts of a house are deleted for good: after how many days, and the oldest when all\n" +
			"together are larger than so many MiB. By default, nothing is deleted. Owners only.\n" +
			"\n" +
			"A thread is old if nothing happened in it, nor in the threads below it. Threads in which something is pinned, runs\n" +
			"or waits for an answer stay, and so does the house's own. An artifact is old by its age; output that is too large for\n" +
			"a log is one, too. The files that a thread's sandbox left stay with the thread. Links to what was deleted say so.\n" +
			"Of threads, the size is that of their logs. What stays counts, too.\n" +
			"\n" +
			"With --dry-run, nothing is set, and it shows what would be deleted.",
		Example: "  arbe house retention --threads 365 --dry-run\n" +
			"  arbe house retention --artifacts 90\n" +
			"  arbe house retention --threads-mb 5000 --artifacts-mb 20000\n" +
			"  arbe house retention --threads 0 --artifacts 0 --yes",
		Args: takes(0, 0, ""),
	}
	cmd.RunE = a.calls(func(ctx context.Context, c *arbe.Client, _ []string) error {
		id, err := a.inHouse(ctx, c, house)
		if err != nil {
			return err
		}
		got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: id})
		if err != nil {
			return err
		}
		now := got.GetHouse().GetRetention()
		want := &arbev1.HouseRetention{ThreadsDays: now.GetThreadsDays(), ArtifactsDays: now.GetArtifactsDays(), ThreadsMb: now.GetThreadsMb(), ArtifactsMb: now.GetArtifactsMb()}
		changed := false
		for flag, set := range map[string]func(){
			"threads": func() { want.ThreadsDays = threads }, "artifacts": func() { want.ArtifactsDays = artifacts },
			"threads-mb": func() { want.ThreadsMb = threadsMB }, "artifacts-mb": func() { want.ArtifactsMb = artifactsMB },
		} {
			if cmd.Flags().Changed(flag) {
				set()
				changed = true
			}
		}
		return a.retain(ctx, c, got.GetHouse(), want, changed && !dry, yes)
	})
	a.houseFlag(cmd, &house)
	flags := cmd.Flags()
	flags.Int32Var(&threads, "threads", 0, "days without activity after which threads are deleted; 0 keeps them")
	flags.Int32Var(&artifacts, "artifacts", 0, "days after which artifacts are deleted; 0 keeps them")
	flags.Int32Var(&threadsMB, "threads-mb", 0, "MiB of logs beyond which the oldest threads are deleted; 0 keeps them")
	flags.Int32Var(&artifactsMB, "artifacts-mb", 0, "MiB beyond which the oldest artifacts are deleted; 0 keeps them")
	flags.BoolVar(&dry, "dry-run", false, "change nothing, and show what would be deleted")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// retain shows what a retention would delete in a house. With set, it asks for confirmation and sets it, unless the house
// has changed since it was read.
func (a *app) retain(ctx context.Context, c *arbe.Client, house *arbev1.House, want *arbev1.HouseRetention, set, yes bool) error {
	got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house.GetId(), Preview: want})
	if err != nil {
		return err
	}
	found := got.GetPreview()
	if set {
		if err := a.confirm(ctx, yes, "within an hour, this deletes %s for good. Set it?", staleWords(found)); err != nil {
			return err
		}
		if _, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house.GetId(), Etag: house.GetEtag(), Retention: want}); err != nil {
			return err
		}
	}
	view := retentionView{house.GetId(), want.ThreadsDays, want.ArtifactsDays, want.ThreadsMb, want.ArtifactsMb, found.GetThreads(), found.GetArtifacts(), found.GetArtifactBytes(), set}
	return a.show(house.GetId(), view, func() string {
		return "threads: " + keptFor(want.ThreadsDays, want.ThreadsMb) + "\nartifacts: " + keptFor(want.ArtifactsDays, want.ArtifactsMb) + "\ndeleted now: " + staleWords(found)
	})
}

func keptFor(days, mb int32) string {
	var words []string
	if days > 0 {
		words = append(words, fmt.Sprintf("deleted after %d days", days))
	}
	if mb > 0 {
		words = append(words, fmt.Sprintf("the oldest deleted beyond %d MiB", mb))
	}
	return cmp.Or(strings.Join(words, ", "), "kept")
}

func staleWords(found *arbev1.RetentionPreview) string {
	return fmt.Sprintf("%d threads and %d artifacts (%s)", found.GetThreads(), found.GetArtifacts(), entry.FileSize(found.GetArtifactBytes()))
}

// retentionView is the retention of a house, as JSON.
type retentionView struct {
	HouseID string `json:"house_id"`
	// ThreadsDays and ArtifactsDays are 0 for no limit of age.
	ThreadsDays   int32 `json:"threads_days"`
	ArtifactsDays int32 `json:"artifacts_days"`
	// ThreadsMB and ArtifactsMB are the MiB beyond which the oldest are deleted; 0 for no limit of size.
	ThreadsMB   int32 `json:"threads_mb"`
	ArtifactsMB int32 `json:"artifacts_mb"`
	// The other fields count what would be deleted now.
	Threads       int64 `json:"threads"`
	Artifacts     int64 `json:"artifacts"`
	ArtifactBytes int64 `json:"artifact_bytes"`
	// Set reports that it was set.
	Set bool `json:"set"`
}
