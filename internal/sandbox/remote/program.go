package remote

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

//go:generate go run ../build keeper ./keeper

// The keeper, built for each processor that boxes may have, whatever this server's is. The packed programs are committed,
// because go build needs no generator and no second build; sandbox/build keeps them current.
var (
	//go:embed keeper_amd64.gz
	keeperAMD64 []byte
	//go:embed keeper_arm64.gz
	keeperARM64 []byte
)

// program is a keeper for one processor.
type program struct {
	// path is where it is in a box. It names the contents, so that servers of different versions may share a box.
	path string
	text []byte
}

// programs are the keepers by what uname calls the processor.
var programs = sync.OnceValues(func() (map[string]program, error) {
	list := map[string]program{}
	for machine, packed := range map[string][]byte{"x86_64": keeperAMD64, "aarch64": keeperARM64} {
		unpacker, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("the keeper for %s: %w", machine, err)
		}
		text, err := io.ReadAll(unpacker)
		if err != nil {
			return nil, fmt.Errorf("the keeper for %s: %w", machine, err)
		}
		sum := sha256.Sum256(text)
		list[machine] = program{protocol.Root + "/keeper-" + hex.EncodeToString(sum[:8]), text}
	}
	return list, nil
})
