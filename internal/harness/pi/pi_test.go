package pi

import (
	"encoding/json"
	"testing"
)

// TestTheLockNamesEveryPackage: the lock is for this version, and fixes where each package comes from and its checksum.
func TestTheLockNamesEveryPackage(t *testing.T) {
	t.Parallel()
	var npm struct {
		Packages map[string]struct{ Version, Resolved, Integrity string }
	}
	if err := json.Unmarshal([]byte(lock), &npm); err != nil {
		t.Fatal(err)
	}
	if got := npm.Packages["node_modules/@earendil-works/pi-coding-agent"].Version; got != Version {
		t.Errorf("the lock has version %q, want %s", got, Version)
	}
	for name, p := range npm.Packages {
		if name != "" && (p.Version == "" || p.Resolved == "" || p.Integrity == "") {
			t.Errorf("%s: version %q, address %q, checksum %q", name, p.Version, p.Resolved, p.Integrity)
		}
	}
}
