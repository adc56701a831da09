package commtest_test

import (
	"fmt"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
)

// Check the operations of two ranks that are goroutines.
func Example() {
	fmt.Println(comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		_, err := commtest.Check(g)
		return err
	}))
	// Output: <nil>
}
