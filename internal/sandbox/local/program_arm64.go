//go:build linux

package local

import _ "embed"

//go:embed supervisor/pid1_arm64.zst
var packedSupervisor []byte
