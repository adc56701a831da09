// Package ramdisk puts the temporary folders of a package's tests in memory. A conversion
// syncs every file and every journal record to disk, which would dominate the time of tests
// with hundreds of conversions.
package ramdisk

import (
	"os"
	"testing"
)

// variable names the parent folder of testing.T.TempDir.
const variable = "TMPDIR"

// Main runs the tests of a package and returns the status for os.Exit. Temporary folders are
// in memory if the system has a memory file system with enough free space. If TMPDIR is set,
// they are there: TMPDIR=/var/tmp go test uses a disk.
func Main(m *testing.M) int {
	if dir := folder(); dir != "" && os.Getenv(variable) == "" {
		if err := os.Setenv(variable, dir); err != nil {
			panic(err) // only for a name with = or NUL
		}
		moved = true
	}
	return m.Run()
}

// moved reports whether Main set the variable.
var moved bool

// Leave puts the temporary folders of a test on a disk, for gigabytes of files, which would displace what is measured. If the user
// set TMPDIR, they are there.
func Leave(t *testing.T) {
	if moved {
		t.Setenv(variable, "/var/tmp")
	}
}
