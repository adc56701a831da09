package checksum_test

import (
	"fmt"

	"github.com/microscale-go/microscale/safetensors/checksum"
)

// The checksum of a tensor does not depend on the order in which its parts are read.
func Example() {
	s := checksum.New(4)
	s.Add([]byte{3, 4}, 2)
	s.Add([]byte{1, 2}, 0)
	fmt.Println(s.Value() == checksum.Of([]byte{1, 2, 3, 4}))
	// Output: true
}
