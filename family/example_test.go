package family_test

import (
	"fmt"

	"github.com/microscale-go/microscale/family"
)

// Experts of a layer in one tensor: the configuration says how many there are, and how wide the model is.
func ExampleModel_StackOf() {
	config := `{"model_type": "unheard_of", "hidden_size": 64, "num_experts": 4}`
	m := family.New([]byte(config), func(yield func(string, []int64) bool) {
		yield("model.layers.0.moe.gate_up_proj", []int64{4, 64, 96})
	})
	s := m.StackOf("model.layers.0.moe.gate_up_proj", []int64{4, 64, 96}, true)
	fmt.Println(s.Transposed, s.Module, s.Parts)
	// Output: true model.layers.0.moe.experts [gate_proj up_proj]
}
