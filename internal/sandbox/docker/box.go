package docker

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// idleLabel says after how long a box that nobody uses is stopped.
const idleLabel = "arbe.idle"

// quarantined begins the name of a box in quarantine, after [remote.CommonPrefix]. A container's labels cannot be changed.
const quarantined = "quarantine-"

// The parts of a box's memory, in eighths, that files in it may take up: what is left is enough to end what fills them.
const tmpEighths, shmEighths = 2, 1

// ownPIDs are the processes and threads that a box has besides those of its commands.
const ownPIDs = 32

// mostFiles is how many files one process may open. An engine cannot give a box more than it may open itself.
const mostFiles = 16384

// creation returns the request for a box. It has no files, devices and namespaces of the engine's machine, no capabilities and
// no way to get any. What it does not say is the engine's own: its system call filter, and user namespaces where they are on.
func (p *provider) creation(spec sandbox.Spec, image string, cores int) client.ContainerCreateOptions {
	limits := spec.Limits
	limits.MemoryMB, limits.PIDs = cmp.Or(limits.MemoryMB, p.cfg.Limits.MemoryMB), cmp.Or(limits.PIDs, p.cfg.Limits.PIDs)
	limits.CPUs = cmp.Or(limits.CPUs, p.cfg.Limits.CPUs)
	if cores > 0 {
		limits.CPUs = min(limits.CPUs, float64(cores)) // the engine refuses more than it has
	}
	labels := remote.LabelsOf(spec)
	labels[idleLabel] = cmp.Or(limits.Idle, p.cfg.IdleStop).String()
	memory, pids := int64(limits.MemoryMB)<<20, int64(limits.PIDs+ownPIDs)
	network := container.NetworkMode("none")
	if spec.Egress.Mode == egress.Open && p.cfg.Network != "" {
		network = container.NetworkMode(p.cfg.Network)
	}
	return client.ContainerCreateOptions{
		Name: remote.Prefix(spec.Labels.Installation) + spec.ID,
		Config: &container.Config{
			Image: image, Labels: labels, Hostname: spec.ID, User: fmt.Sprintf("%d:%d", firstID, firstID), WorkingDir: "/",
			Entrypoint: []string{firstPath, protocol.First}, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, StopSignal: "SIGKILL",
		},
		HostConfig: &container.HostConfig{
			ExtraHosts:  []string{spec.ID + ":127.0.0.1"}, // without a network, nothing else says what its own name is
			NetworkMode: network, IpcMode: "private", CgroupnsMode: "private", Runtime: p.cfg.Runtime,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Tmpfs:         map[string]string{"/tmp": fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,size=%d", memory/8*tmpEighths)},
			ShmSize:       memory / 8 * shmEighths,
			StorageOpt:    storage(spec.Limits.DiskMB),
			Resources: container.Resources{
				Memory: memory, MemorySwap: memory, NanoCPUs: int64(limits.CPUs * 1e9), PidsLimit: &pids,
				Ulimits: []*container.Ulimit{{Name: "core"}, {Name: "nofile", Soft: mostFiles, Hard: mostFiles}, {Name: "msgqueue"}},
			},
		},
	}
}

// storage asks for a disk of its own size, which not every engine has.
func storage(megabytes int) map[string]string {
	if megabytes == 0 {
		return nil
	}
	return map[string]string{"size": strconv.Itoa(megabytes) + "M"}
}

// noStorage reports whether the engine has no disks of their own size.
func noStorage(err error) bool {
	return err != nil && strings.Contains(err.Error(), "storage-opt")
}

// filter returns the filter for the boxes of this program that have labels.
func filter(labels map[string]string) client.Filters {
	f := client.Filters{}
	f.Add("label", remote.SandboxLabel)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.Add("label", name+"="+labels[name])
	}
	return f
}

// listed returns a box of the engine's list. ours is false if this program has not created it, or if it is being deleted.
func listed(from container.Summary) (box sandbox.Box, ours bool) {
	box, ours = remote.BoxOf(from.Labels)
	box.Ref, box.CreatedAt = from.ID, time.Unix(from.Created, 0)
	for _, name := range from.Names {
		box.Quarantined = box.Quarantined || inQuarantine(name)
	}
	return box, ours && !ending(from.State)
}

// inQuarantine reports whether a name, which the engine begins with a slash, is that of a box in quarantine.
func inQuarantine(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "/"), remote.CommonPrefix+quarantined)
}

// ending reports whether a container only waits to be deleted.
func ending(state container.ContainerState) bool {
	return state == container.StateRemoving || state == container.StateDead
}

// validRef is the form of a container's id. It also keeps a ref from changing the address of a request.
var validRef = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkRef refuses a reference that this driver cannot have given.
func checkRef(ref string) error {
	if !validRef.MatchString(ref) {
		return fault.Newf(fault.Invalid, "use the one that its creation returned", "%.100q is not the reference of a sandbox in a Docker engine", ref)
	}
	return nil
}
