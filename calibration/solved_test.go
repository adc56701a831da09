package calibration

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// TestSolved: factors that a file has are those that its sums would give, of inputs with a drift and of experts, and it is no larger.
func TestSolved(t *testing.T) {
	const cols, tokens = 48, 100
	r := rand.New(rand.NewPCG(9, 0))
	x, low := tensor.New(tokens, cols), tensor.New(tokens, cols)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
		low.Data[i] = x.Data[i] + 0.1*float32(r.NormFloat64())
		if i%cols == 7 {
			low.Data[i] = 0 // dead
		}
	}
	read := func(solved bool) *Statistics {
		c := &Collector{Dir: t.TempDir(), Hessian: true, Pairs: true, Threads: 2, Layers: [][]Linear{{
			{Name: "in", Width: cols, Modules: []string{"in"}},
			{Name: "e0", Width: cols, Modules: []string{"e0"}, Kind: "up", Stream: true},
			{Name: "e1", Width: cols, Modules: []string{"e1"}, Kind: "up", Stream: true}, // no token reaches it
		}}}
		c.Out = filepath.Join(c.Dir, "statistics.safetensors")
		for _, step := range []func() error{
			func() error { return c.AddPair("in", x, low) },
			func() error { return c.Add("e0", x.View(0, 20, 0, cols)) },
			func() error { return c.Finish(t.Context(), 0) },
			func() error {
				if !solved {
					return nil
				}
				for range 2 { // a run that is resumed finds the factors
					s, err := c.Layer(t.Context(), 0)
					if err == nil {
						err = s.Close()
					}
					if err != nil {
						return err
					}
				}
				return nil
			},
			func() error { return c.Join(t.Context()) },
			c.Remove,
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if left, err := filepath.Glob(filepath.Join(c.Dir, "*")); err != nil || len(left) != 1 {
			t.Errorf("left %v (%v)", left, err)
		}
		s, err := Read(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		info, err := os.Stat(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		const n = cols * cols // the sums of two experts and of both, and those of an input and its drift
		if summing, after := c.Bytes(10); summing != 5*8*n+4*24*cols+4*cols*(3*10+panelColumns) || after != 6*8*n+5*24*cols {
			t.Errorf("got %d bytes of memory for sums and %d after them", summing, after)
		}
		const header = 4096
		if info.Size() > c.FileBytes()+header {
			t.Errorf("%d bytes, want at most %d", info.Size(), c.FileBytes()+header)
		}
		return s
	}
	sums := read(false)
	solved := read(true)
	if solved.Identity() != sums.Identity() {
		t.Error("the statistics have another identity")
	}
	for _, name := range []string{"in", "e0", "e1"} {
		a, _ := sums.Of(name)
		b, _ := solved.Of(name)
		if !b.HasHessian() || !b.Solved() || a.Solved() {
			t.Fatalf("%s: a factor is missing, or made of sums alone", name)
		}
		want, err := a.Factor(1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Factor(2)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: another factor", name)
		}
		if (got.aim != nil) != (name == "in") || (got.Dead == 1) != (name == "in") {
			t.Errorf("%s: an aim %v, %d dead columns", name, got.aim != nil, got.Dead)
		}
	}
	for _, in := range append(slices.Clone(sums.Inputs), solved.Inputs...) {
		s := sums
		if in.Solved() {
			s = solved
		}
		err := s.CheckFolded(map[string][]float32{in.Modules[0]: make([]float32, cols)})
		if err == nil || !strings.Contains(err.Error(), "cannot be divided") {
			t.Errorf("divide the input of %s: got %v", in.Modules[0], err)
		}
	}
	damaged(t, sums.file)
	damaged(t, solved.file)
	raised := Factor{Order: []int{1, 0}, Damping: DefaultDamping * 10 * 10}
	if got := raised.order(); !reflect.DeepEqual(got, []float32{1, 0, 2}) {
		t.Errorf("got the order %v", got)
	}
}

// damaged checks that a changed bit of any tensor is an error with the name of the file, and one of any byte of the header an error.
func damaged(t *testing.T, f *safetensors.File) {
	t.Helper()
	t.Helper()
	whole, path := read(t, f.Name()), filepath.Join(t.TempDir(), "damaged.safetensors")
	var places []int64
	for at := range f.DataStart() {
		places = append(places, at)
	}
	for _, info := range f.Tensors() {
		places = append(places, f.DataStart()+info.Begin+info.Bytes()/2)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, at := range places {
		if _, err := file.WriteAt([]byte{whole[at] ^ 1}, at); err != nil {
			t.Fatal(err)
		}
		s, err := Read(path)
		if err == nil {
			for _, in := range s.all {
				for _, v := range in.stored(hessian, drift, driftSquare, peak, order, aim, factor) {
					_, failed := v.data()
					err = errors.Join(err, failed)
				}
			}
			err = errors.Join(err, s.Close())
		}
		if err == nil || at >= f.DataStart() && (!strings.Contains(err.Error(), "damaged: ") || !strings.Contains(err.Error(), path+": ")) {
			t.Errorf("a bit of byte %d: got %v", at, err)
		}
		if _, err := file.WriteAt(whole[at:at+1], at); err != nil {
			t.Fatal(err)
		}
	}
}
