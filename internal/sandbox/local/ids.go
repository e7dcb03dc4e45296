//go:build linux

package local

import (
	"hash/fnv"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// agentID is the user and group id of commands inside a box.
const agentID = 1000

// Blocks of host ids for boxes if the server is root: above the ids of people and the ranges in /etc/subuid (which
// start at 100,000), and below 2^31, because some tools take larger numbers for negative ones.
const (
	blockSize  = 65536
	firstBlock = 0x20000000 / blockSize
	lastBlock  = 0x7ffe0000/blockSize - 1
)

// identity maps the ids in a box to ids on the host.
type identity struct {
	uids, gids []specs.LinuxIDMapping
	// agent is the user of commands inside; the host ids are the same user's outside.
	agent, hostUID, hostGID uint32
	// rootUID is the host's id for the box's user 0, which owns the directories that the box must be able to pass
	// through.
	rootUID uint32
}

// blockIdentity gives a box its own block of ids, which no file or process of another box or of the host has.
func blockIdentity(block uint32) identity {
	base := block * blockSize
	m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: blockSize}}
	return identity{uids: m, gids: m, agent: agentID, hostUID: base + agentID, hostGID: base + agentID, rootUID: base}
}

// ownIdentity is for a server that is not root. It maps user 0 in the box to the server's user, because the kernel lets
// it map only its own id, and runc requires that to be 0 inside, regardless of /etc/subuid. Commands see themselves as
// user 0 without capabilities, and the server can read and delete the files that they leave.
func ownIdentity() identity {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	return identity{
		uids:    []specs.LinuxIDMapping{{ContainerID: 0, HostID: uid, Size: 1}},
		gids:    []specs.LinuxIDMapping{{ContainerID: 0, HostID: gid, Size: 1}},
		hostUID: uid, hostGID: gid, rootUID: uid,
	}
}

// freeBlock finds an unused block. The start of the search depends on the directory, so that two servers on one machine
// start at different places.
func freeBlock(dir string, taken func(block uint32) bool) (uint32, bool) {
	const count = lastBlock - firstBlock + 1
	h := fnv.New32a()
	h.Write([]byte(dir))
	start := h.Sum32() % count
	for i := range uint32(count) {
		if block := firstBlock + (start+i)%count; !taken(block) {
			return block, true
		}
	}
	return 0, false
}

// asRoot reports whether the server has root's rights.
func asRoot() bool { return os.Geteuid() == 0 }
