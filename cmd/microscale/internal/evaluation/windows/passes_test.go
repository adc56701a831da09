package windows

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/calibration"
)

// TestPasses: with memory for the sums of one expert, layers are applied once for each, and the statistics are the same.
func TestPasses(t *testing.T) {
	const layers, vocabulary = 2, 50
	m, err := LookupMethod("all")
	if err != nil {
		t.Fatal(err)
	}
	collect := func(memory int64) (file []byte, passes float64) {
		windows, err := m.Windows(fakeTokens(20, vocabulary), 5, -1)
		if err != nil {
			t.Fatal(err)
		}
		c := &calibration.Collector{Dir: filepath.Join(t.TempDir(), "scratch"), Hessian: true, Memory: memory}
		c.Out = filepath.Join(filepath.Dir(c.Dir), "statistics.safetensors")
		for l := range layers {
			var list []calibration.Linear
			for name, width := range map[string]int{"up": fakeHidden, "down": 20} {
				name = fmt.Sprintf("layers.%d.%s", l, name)
				list = append(list, calibration.Linear{Name: name, Width: width, Modules: []string{name}, Kind: name[9:], Stream: true})
			}
			if list[0].Width > list[1].Width { // in the order of the computation
				list[0], list[1] = list[1], list[0]
			}
			c.Layers = append(c.Layers, list)
		}
		r := &Run{Windows: windows, Models: []Stack{newFake(vocabulary, layers, 0)}, Inputs: c, Stream: &Stream{Dir: c.Dir, Key: testKey()}}
		passes, _ = r.Passes()
		if _, err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		file, err = os.ReadFile(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		return file, passes
	}
	want, once := collect(0)
	got, twice := collect(1)
	if !bytes.Equal(got, want) || once != layers || twice != 2*layers {
		t.Errorf("%g passes and %g; the same file: %v", once, twice, bytes.Equal(got, want))
	}
}
