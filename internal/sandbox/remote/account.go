package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The labels of boxes at a provider that has names and values for them; see [sandbox.Labels].
const (
	InstallationLabel = "arbe.installation"
	HouseLabel        = "arbe.house"
	ThreadLabel       = "arbe.thread"
	EnvironmentLabel  = "arbe.environment"
	SandboxLabel      = "arbe.sandbox"
)

// LabelsOf returns the labels of a box, as a map that the caller may change.
func LabelsOf(spec sandbox.Spec) map[string]string {
	all := Filter(spec.Labels)
	all[InstallationLabel], all[SandboxLabel] = spec.Labels.Installation, spec.ID
	return all
}

// Filter returns the labels that boxes must have to match.
func Filter(want sandbox.Labels) map[string]string {
	filter := map[string]string{}
	for name, value := range map[string]string{
		InstallationLabel: want.Installation, HouseLabel: want.House, ThreadLabel: want.Thread, EnvironmentLabel: want.Environment,
	} {
		if value != "" {
			filter[name] = value
		}
	}
	return filter
}

// Labelled reports whether labels are those of a spec's box.
func Labelled(labels map[string]string, spec sandbox.Spec) bool {
	return labels[SandboxLabel] == spec.ID && labels[InstallationLabel] == spec.Labels.Installation
}

// BoxOf returns the box that has these labels, without its ref. ours is false if no such program as this has created it.
func BoxOf(labels map[string]string) (box sandbox.Box, ours bool) {
	return sandbox.Box{ID: labels[SandboxLabel], Labels: sandbox.Labels{
		Installation: labels[InstallationLabel], House: labels[HouseLabel], Thread: labels[ThreadLabel], Environment: labels[EnvironmentLabel],
	}}, labels[SandboxLabel] != ""
}

// CommonPrefix begins the name of every box.
const CommonPrefix = "arbe-"

// Prefix begins the names of an installation's boxes. Several may share an account.
func Prefix(installation string) string {
	sum := sha256.Sum256([]byte(installation))
	return CommonPrefix + hex.EncodeToString(sum[:4]) + "-"
}

// CheckHouse refuses a box beyond the most that a house may have. boxes is what the provider calls them.
func CheckHouse(ctx context.Context, p Provider, of sandbox.Labels, most int, boxes string) error {
	if of.House == "" {
		return nil
	}
	found, err := p.List(ctx, sandbox.Labels{Installation: of.Installation, House: of.House})
	if err == nil && len(found) >= most {
		err = fault.Newf(fault.Exhausted, "delete one that is not needed: arbe sandbox list", "the house has %d %s, which is the most that this server allows", len(found), boxes)
	}
	return err
}

// Insistence is how long a change is asked for that a provider refuses or does not answer.
const Insistence = 2 * time.Minute

// Insist repeats what fails with a [fault.Unavailable].
func Insist(ctx context.Context, do func() error) error {
	begin := time.Now()
	for pause := shortestPause; ; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil || fault.CodeOf(err) != fault.Unavailable || time.Since(begin) > Insistence || wait(ctx, pause) != nil {
			return err
		}
	}
}
