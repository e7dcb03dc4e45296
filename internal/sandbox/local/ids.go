//go:build linux

package local

import (
	"bufio"
	"hash/fnv"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// agentID is the user and the group that commands run as, seen from inside a box.
const agentID = 1000

// Blocks of host ids for boxes, when the server is root: far from people, from the ranges in
// /etc/subuid (which start at 100,000) and below 2^31, which some tools take for negative.
const (
	blockSize  = 65536
	firstBlock = 0x20000000 / blockSize
	lastBlock  = 0x7ffe0000/blockSize - 1
)

// identity says which ids a box has inside, and what they are on the host.
type identity struct {
	uids, gids []specs.LinuxIDMapping
	// agent is the user commands run as, inside; host ids below are the same user's outside.
	agent, hostUID, hostGID uint32
	// rootUID is the host's id for the box's user 0, which owns what the box must pass through.
	rootUID uint32
}

// blockIdentity gives a box a block of ids for itself: no file and no process of another box, nor of
// the host, has any of them.
func blockIdentity(block uint32) identity {
	base := block * blockSize
	m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: blockSize}}
	return identity{uids: m, gids: m, agent: agentID, hostUID: base + agentID, hostGID: base + agentID, rootUID: base}
}

// ownIdentity is for a server that is not root: commands run as the server's own user on the host, so
// that it can read and delete what they leave. With a range in /etc/subuid and /etc/subgid (and the
// uidmap tools) they see themselves as user 1000; without, the kernel lets us map a single id, which
// the runtime requires to be 0: a user 0 without any capability.
func ownIdentity() identity {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	id := identity{hostUID: uid, hostGID: gid, rootUID: uid}
	uidStart, uidSize := subordinate("/etc/subuid")
	gidStart, gidSize := subordinate("/etc/subgid")
	_, noTool := exec.LookPath("newuidmap")
	if noTool != nil || uidSize < blockSize || gidSize < blockSize {
		id.uids = []specs.LinuxIDMapping{{ContainerID: 0, HostID: uid, Size: 1}}
		id.gids = []specs.LinuxIDMapping{{ContainerID: 0, HostID: gid, Size: 1}}
		return id
	}
	around := func(start, own uint32) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{
			{ContainerID: 0, HostID: start, Size: agentID},
			{ContainerID: agentID, HostID: own, Size: 1},
			{ContainerID: agentID + 1, HostID: start + agentID, Size: blockSize - agentID - 1},
		}
	}
	id.agent, id.rootUID = agentID, uidStart
	id.uids, id.gids = around(uidStart, uid), around(gidStart, gid)
	return id
}

// subordinate finds the first range of ids that a file in the format of subuid(5) gives the server's user.
func subordinate(file string) (start, size uint32) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	names := []string{strconv.Itoa(os.Getuid())}
	if u, err := user.Current(); err == nil {
		names = append(names, u.Username)
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 3 {
			continue
		}
		for _, name := range names {
			if fields[0] == name {
				s, _ := strconv.ParseUint(fields[1], 10, 32)
				n, _ := strconv.ParseUint(fields[2], 10, 32)
				return uint32(s), uint32(n)
			}
		}
	}
	return 0, 0
}

// freeBlock finds a block that no box has. Where it starts looking depends on the directory, so that
// two servers on one machine do not start at the same place.
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
