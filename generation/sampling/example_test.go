package sampling_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/generation/sampling"
)

// The zero value of the options takes the most likely token.
func Example() {
	s, err := sampling.New(sampling.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Next([]float32{0.5, 2, 1}, nil))
	// Output: 1 <nil>
}
