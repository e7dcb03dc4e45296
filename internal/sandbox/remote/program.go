package remote

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

//go:generate go run ../build keeper ./keeper

// The keeper, built for every processor that boxes may have, whichever this server has. The packed programs are committed, so
// that go build needs neither a generator nor a second build; sandbox/build checks that they are current.
var (
	//go:embed keeper_amd64.zst
	keeperAMD64 []byte
	//go:embed keeper_arm64.zst
	keeperARM64 []byte
)

// Program is a keeper for one processor.
type Program struct {
	// Path is its path in a box. It is derived from the contents, so that servers of different versions can share a box.
	Path string
	Text []byte
}

// ProgramFor returns the keeper for a processor, as uname names it. A [Provider] that puts the keeper into its boxes saves
// the driver from sending it.
func ProgramFor(processor string) (Program, error) {
	all, err := programs()
	if err != nil {
		return Program{}, err
	}
	keeper, ok := all[processor]
	if !ok {
		return Program{}, fault.Newf(fault.Precondition, "use an image for x86_64 or aarch64", "sandboxes cannot have a processor %q", processor)
	}
	return keeper, nil
}

// programs holds the keepers by uname's name of the processor.
var programs = sync.OnceValues(func() (map[string]Program, error) {
	list := map[string]Program{}
	unpacker, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer unpacker.Close()
	for machine, packed := range map[string][]byte{"x86_64": keeperAMD64, "aarch64": keeperARM64} {
		text, err := unpacker.DecodeAll(packed, nil)
		if err != nil {
			return nil, fmt.Errorf("the keeper for %s: %w", machine, err)
		}
		sum := sha256.Sum256(text)
		list[machine] = Program{protocol.Root + "/keeper-" + hex.EncodeToString(sum[:8]), text}
	}
	return list, nil
})
