package mpi_test

import (
	"fmt"

	"github.com/microscale-go/microscale/comm/mpi"
)

// A process that no launcher started has no job.
func ExampleFindLauncher() {
	l := mpi.FindLauncher()
	fmt.Printf("%q, %d\n", l.Name, l.Rank)
	// Output: "", 0
}
