package docker

import (
	"maps"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// idleLabel records how long a box may be idle before it is stopped.
const idleLabel = "arbe.idle"

// quarantined is the prefix of the name of a box in quarantine. It is followed by [remote.CommonPrefix]. The mark is in the
// name because a container's labels cannot be changed.
const quarantined = "quarantine-"

// filter returns a filter that matches this program's boxes with the given labels.
func filter(labels map[string]string) client.Filters {
	f := client.Filters{}
	f.Add("label", remote.SandboxLabel)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.Add("label", name+"="+labels[name])
	}
	return f
}

// inQuarantine reports whether name belongs to a box in quarantine. The engine puts a slash before names.
func inQuarantine(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "/"), remote.CommonPrefix+quarantined)
}

// ending reports whether a container is about to be deleted.
func ending(state container.ContainerState) bool {
	return state == container.StateRemoving || state == container.StateDead
}
