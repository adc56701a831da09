package interop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/layout"
)

// TestLayouts compares orders of scales with torchao's to_blocked and from_blocked, and with
// PyTorch's reshape that defines AITER's shuffle.
func TestLayouts(t *testing.T) {
	interpreter := bitsTorch("torchao==0.18.0")(t)
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	arguments := []string{dir}
	var shapes [][2]int
	for _, rows := range []int{1, 31, 32, 33, 127, 128, 129, 256, 300} {
		for _, blocks := range []int{1, 3, 4, 5, 8, 17} {
			shapes = append(shapes, [2]int{rows, blocks})
			arguments = append(arguments, fmt.Sprintf("%dx%d", rows, blocks))
			scales := make([]byte, rows*blocks)
			for i := range scales {
				scales[i] = byte(random.Uint32())
			}
			if err := os.WriteFile(filepath.Join(dir, arguments[len(arguments)-1]+".in"), scales, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	script(t, interpreter, "layouts.py", arguments...)
	for i, shape := range arguments[1:] {
		rows, blocks := shapes[i][0], shapes[i][1]
		scales := read(t, dir, shape+".in")
		for _, name := range []string{"swizzled", "shuffled"} {
			var order layout.Order
			if err := order.UnmarshalText([]byte(name)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, order.Size(rows, blocks))
			layout.Reorder(got, order, scales, layout.RowMajor, rows, blocks)
			if !bytes.Equal(got, read(t, dir, shape+"."+name)) {
				t.Errorf("%s: %s differs from PyTorch's", shape, order)
			}
		}
		if !bytes.Equal(scales, read(t, dir, shape+".back")) {
			t.Errorf("%s: torchao's from_blocked does not invert to_blocked", shape)
		}
	}
}
