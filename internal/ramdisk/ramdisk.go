// Package ramdisk gives the tests of a package their folders in memory. A
// conversion waits for the disk at every file and every record of its journal,
// and a test of a hundred conversions would do nothing else.
package ramdisk

import (
	"os"
	"testing"
)

// variable names the folder in which testing.T.TempDir makes its own.
const variable = "TMPDIR"

// Main runs the tests of a package, and returns the status for os.Exit. Their
// folders are in memory where the system has a file system there with room for
// them. Where TMPDIR is set they are there: TMPDIR=/var/tmp go test has them on a
// disk.
func Main(m *testing.M) int {
	if dir := folder(); dir != "" && os.Getenv(variable) == "" {
		if err := os.Setenv(variable, dir); err != nil {
			panic(err) // a name without = or NUL
		}
	}
	return m.Run()
}
