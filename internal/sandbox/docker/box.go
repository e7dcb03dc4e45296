package docker

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// The shares of a box's memory, in eighths, that files in /tmp and /dev/shm may use. The rest is enough to run the programs
// that delete them.
const tmpEighths, shmEighths = 2, 1

// ownPIDs is the number of processes and threads that a box needs besides those of its commands. A connection to a port takes
// about ten while it is made.
const ownPIDs = 96

// mostFiles limits the files that one process may open. An engine cannot grant more than its own limit.
const mostFiles = 16384

// secretMount is the file system of [protocol.SecretFolder]. It belongs to the user of process 1.
var secretMount = fmt.Sprintf("rw,noexec,nosuid,nodev,mode=%#o,uid=%d,gid=%d,size=%d", secretMode, firstID, protocol.SecretGroup, protocol.SecretSpace)

// creation returns the request that creates a box. The box shares no files, devices or namespaces with the engine's machine,
// has no capabilities and cannot gain any. The engine's configuration decides the rest, such as the system call filter and user
// namespaces.
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
			ExtraHosts:  []string{spec.ID + ":127.0.0.1"}, // without a network, nothing else resolves the box's own name
			NetworkMode: network, IpcMode: "private", CgroupnsMode: "private", Runtime: p.cfg.Runtime,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Tmpfs: map[string]string{
				"/tmp":                fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,size=%d", memory/8*tmpEighths),
				protocol.SecretFolder: secretMount,
			},
			ShmSize:    memory / 8 * shmEighths,
			StorageOpt: storage(spec.Limits.DiskMB),
			Resources: container.Resources{
				Memory: memory, MemorySwap: memory, NanoCPUs: int64(limits.CPUs * 1e9), PidsLimit: &pids,
				Ulimits: []*container.Ulimit{{Name: "core"}, {Name: "nofile", Soft: mostFiles, Hard: mostFiles}, {Name: "msgqueue"}},
			},
		},
	}
}

// storage asks for a disk of limited size, which not every engine supports.
func storage(megabytes int) map[string]string {
	if megabytes == 0 {
		return nil
	}
	return map[string]string{"size": strconv.Itoa(megabytes) + "M"}
}

// noStorage reports whether err says that the engine cannot limit the size of disks.
func noStorage(err error) bool {
	return err != nil && strings.Contains(err.Error(), "storage-opt")
}

// listed converts an element of the engine's list. ours is false if this program did not create the container, or if the
// container is being deleted.
func listed(from container.Summary) (box sandbox.Box, ours bool) {
	box, ours = remote.BoxOf(from.Labels)
	box.Ref, box.CreatedAt, box.Meter = from.ID, time.Unix(from.Created, 0), meterOf(from.State)
	for _, name := range from.Names {
		box.Quarantined = box.Quarantined || inQuarantine(name)
	}
	return box, ours && !ending(from.State)
}

func meterOf(state container.ContainerState) sandbox.Meter {
	if state == container.StateRunning || state == container.StatePaused {
		return sandbox.Meter{Power: sandbox.PowerOn}
	}
	return sandbox.Meter{Power: sandbox.PowerOff}
}

// validRef matches a container's id. It also keeps a ref from altering the path of a request.
var validRef = lazyregexp.New(`^[0-9a-f]{64}$`)

// checkRef refuses a reference that this driver cannot have issued.
func checkRef(ref string) error {
	if !validRef.MatchString(ref) {
		return fault.Newf(fault.Invalid, "use the one that its creation returned", "%.100q is not the reference of a sandbox in a Docker engine", ref)
	}
	return nil
}
