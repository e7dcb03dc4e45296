package dbtest

import (
	"os"
	"testing"
)

// Main runs a package's tests, calls after, and then stops the cluster and removes its files. Call it from TestMain.
// Otherwise the cluster still ends with the process, but its files stay in the temporary directory.
func Main(m *testing.M, after ...func()) { os.Exit(Run(m, after...)) }

// Run is Main for a TestMain that exits by itself, with the code that Run returns.
func Run(m *testing.M, after ...func()) (code int) {
	code = m.Run()
	for _, f := range after {
		f()
	}
	dropSpares()
	if shared.stop != nil {
		shared.stop()
	}
	copied.remove()
	return code
}
