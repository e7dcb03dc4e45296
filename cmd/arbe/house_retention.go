package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func houseRetention(a *app) *cobra.Command {
	var house string
	var threads, artifacts int32
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show or set after how many days a house's threads and artifacts are deleted",
		Long: "Show or set after how many days old threads and artifacts of a house are deleted for good. By default, nothing is\n" +
			"deleted. Owners only.\n" +
			"\n" +
			"A thread is old if nothing happened in it, nor in the threads below it. Threads in which something is pinned, runs\n" +
			"or waits for an answer stay, and so does the house's own. An artifact is old by its age; output that is too large for\n" +
			"a log is one, too. The files that a thread's sandbox left stay with the thread. Links to what was deleted say so.\n" +
			"\n" +
			"With --dry-run, nothing is set, and it shows what would be deleted.",
		Example: "  arbe house retention --threads 365 --dry-run\n" +
			"  arbe house retention --artifacts 90\n" +
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
		want := &arbev1.HouseRetention{ThreadsDays: now.GetThreadsDays(), ArtifactsDays: now.GetArtifactsDays()}
		changed := cmd.Flags().Changed("threads") || cmd.Flags().Changed("artifacts")
		if cmd.Flags().Changed("threads") {
			want.ThreadsDays = threads
		}
		if cmd.Flags().Changed("artifacts") {
			want.ArtifactsDays = artifacts
		}
		return a.retain(ctx, c, got.GetHouse(), want, changed && !dry, yes)
	})
	a.houseFlag(cmd, &house)
	flags := cmd.Flags()
	flags.Int32Var(&threads, "threads", 0, "days without activity after which threads are deleted; 0 keeps them")
	flags.Int32Var(&artifacts, "artifacts", 0, "days after which artifacts are deleted; 0 keeps them")
	flags.BoolVar(&dry, "dry-run", false, "change nothing, and show what would be deleted")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// retain shows what a retention would delete in a house, and with set asks for it and sets it, unless the house has changed since
// it was read.
func (a *app) retain(ctx context.Context, c *arbe.Client, house *arbev1.House, want *arbev1.HouseRetention, set, yes bool) error {
	got, err := c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house.GetId(), Preview: want})
	if err != nil {
		return err
	}
	found := got.GetPreview()
	if set {
		if err := a.confirm(ctx, yes, "%s are old now, and are deleted for good within an hour. Set it?", staleWords(found)); err != nil {
			return err
		}
		if _, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house.GetId(), Etag: house.GetEtag(), Retention: want}); err != nil {
			return err
		}
	}
	view := retentionView{house.GetId(), want.ThreadsDays, want.ArtifactsDays, found.GetThreads(), found.GetArtifacts(), found.GetArtifactBytes(), set}
	return a.show(house.GetId(), view, func() string {
		return "threads: " + keptFor(want.ThreadsDays) + "\nartifacts: " + keptFor(want.ArtifactsDays) + "\nold now: " + staleWords(found)
	})
}

func keptFor(days int32) string {
	if days == 0 {
		return "kept"
	}
	return fmt.Sprintf("deleted after %d days", days)
}

func staleWords(found *arbev1.RetentionPreview) string {
	return fmt.Sprintf("%d threads and %d artifacts (%s)", found.GetThreads(), found.GetArtifacts(), entry.FileSize(found.GetArtifactBytes()))
}

// retentionView is the retention of a house, as JSON.
type retentionView struct {
	HouseID string `json:"house_id"`
	// ThreadsDays and ArtifactsDays are 0 for what is kept.
	ThreadsDays   int32 `json:"threads_days"`
	ArtifactsDays int32 `json:"artifacts_days"`
	// The others count what is old now, with these days.
	Threads       int64 `json:"threads"`
	Artifacts     int64 `json:"artifacts"`
	ArtifactBytes int64 `json:"artifact_bytes"`
	// Set reports that the days were set.
	Set bool `json:"set"`
}
