package dbtest

import (
	"os"
	"testing"
)

// Main runs a package's tests, calls after, and then stops the cluster and removes its files. Call it from TestMain.
// Otherwise the cluster still ends with the process, but its files stay in the temporary directory.
func Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, f := range after {
		f()
	}
	dropSpares()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}
