package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// The labels of boxes at a provider whose labels have names and values; see [sandbox.Labels].
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

// Filter returns the labels that a box must have to match.
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

// Labelled reports whether labels belong to a spec's box.
func Labelled(labels map[string]string, spec sandbox.Spec) bool {
	return labels[SandboxLabel] == spec.ID && labels[InstallationLabel] == spec.Labels.Installation
}

// BoxOf returns the box that labels describe, without its ref. ours is false if arbe did not create it.
func BoxOf(labels map[string]string) (box sandbox.Box, ours bool) {
	return sandbox.Box{ID: labels[SandboxLabel], Labels: sandbox.Labels{
		Installation: labels[InstallationLabel], House: labels[HouseLabel], Thread: labels[ThreadLabel], Environment: labels[EnvironmentLabel],
	}}, labels[SandboxLabel] != ""
}

// CommonPrefix is the prefix of every box's name.
const CommonPrefix = "arbe-"

// Prefix returns the prefix of the names of an installation's boxes. Several installations may share an account.
func Prefix(installation string) string {
	sum := sha256.Sum256([]byte(installation))
	return CommonPrefix + hex.EncodeToString(sum[:4]) + "-"
}

// Account is how houses use a provider with keys of their own. C is the provider's configuration.
type Account[C any] struct {
	// Secret names the secret in which a house keeps its key.
	Secret string
	// Configure returns the configuration for the account of a key. It keeps the operator's address of the provider, and drops
	// what exists only in the operator's account.
	Configure func(operator C, key string) C
}

// Unlimited makes [CheckHouse] allow any number of boxes. A house in its own account has only the limits of that account.
const Unlimited = -1

// CheckHouse returns an error if a house already has as many boxes as it may. boxes is the provider's word for them.
func CheckHouse(ctx context.Context, p Provider, of sandbox.Labels, most int, boxes string) error {
	if of.House == "" || most == Unlimited {
		return nil
	}
	found, err := p.List(ctx, sandbox.Labels{Installation: of.Installation, House: of.House})
	if err == nil && len(found) >= most {
		err = fault.Newf(fault.Exhausted, "delete one that is not needed: arbe sandbox list", "the house has %d %s, the most that this server allows", len(found), boxes)
	}
	return err
}

// Insistence limits how long a change is retried while the provider refuses it or does not answer.
const Insistence = 2 * time.Minute

// Insist retries do while it fails with a [fault.Unavailable].
func Insist(ctx context.Context, do func() error) error {
	begin := time.Now()
	for pause := shortestPause; ; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil || fault.CodeOf(err) != fault.Unavailable || time.Since(begin) > Insistence || wait(ctx, pause) != nil {
			return err
		}
	}
}
