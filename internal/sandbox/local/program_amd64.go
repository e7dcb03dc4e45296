//go:build linux

package local

import _ "embed"

//go:embed supervisor/pid1_amd64.zst
var packedSupervisor []byte
