package calibration

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// collect reads the rows of x, in windows of a number of rows, as the input of one layer, and returns the file
// of its statistics.
func collect(t *testing.T, x tensor.Dense, window, threads int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &Collector{Dir: filepath.Dir(path), Out: path, Hessian: true, Threads: threads}
	for layer := range 2 {
		var linears []Linear
		for _, linear := range []string{"in", "out"} {
			name := string(rune('0'+layer)) + linear
			linears = append(linears, Linear{Name: name, Width: x.Cols, Modules: []string{name + ".a", name + ".b"}})
		}
		c.Layers = append(c.Layers, linears)
	}
	for layer := range c.Layers {
		for from := 0; from < x.Rows; from += window {
			for _, linear := range []string{"in", "out"} {
				if err := c.Add(string(rune('0'+layer))+linear, x.View(from, min(from+window, x.Rows), 0, x.Cols)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.Finish(t.Context(), layer); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) != 1 {
		t.Fatalf("files %v are left (%v)", entries, err)
	}
	return path
}

// TestCollectorThreads compares the sums with those of float64, one element after another.
func TestCollectorThreads(t *testing.T) {
	const rows, cols = 2*blockTokens + 77, 9
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i*i%1013))) * float32(i%cols+1)
	}
	path := collect(t, x, rows, 1)
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Inputs) != 4 || len(s.Amaxes()) != 8 {
		t.Fatalf("got %d inputs of %d modules, want 4 of 8", len(s.Inputs), len(s.Amaxes()))
	}
	in, ok := s.Of("1out.b")
	if !ok || in.Tokens != rows || in.Width() != cols {
		t.Fatalf("got %+v", in)
	}
	h, err := in.Hessian()
	if err != nil {
		t.Fatal(err)
	}
	amax, k := 0.0, 0
	for i := range cols {
		sum := 0.0
		for j := i; j < cols; j++ {
			product := 0.0
			for row := range rows {
				a, b := float64(x.At(row, i)), float64(x.At(row, j))
				product += a * b / rows
				amax = max(amax, math.Abs(a))
				if j == i {
					sum += a / rows
				}
			}
			if math.Abs(float64(h[k])-product) > 1e-4 {
				t.Errorf("column %d times %d: got %g, want %g", i, j, h[k], product)
			}
			if j == i && (math.Abs(float64(in.Square[i])-product) > 1e-6*product || math.Abs(float64(in.Mean[i])-sum) > 1e-6) {
				t.Errorf("column %d: got %g and %g, want %g and %g", i, in.Square[i], in.Mean[i], product, sum)
			}
			k++
		}
	}
	if in.Amax != amax {
		t.Errorf("got amax %g, want %g", in.Amax, amax)
	}
	for _, threads := range []int{2, 5} {
		if again := collect(t, x, rows, threads); !bytes.Equal(read(t, again), read(t, path)) {
			t.Errorf("%d threads give other bytes", threads)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCollectorErrors: inputs that cannot be calibrated name their module, and no file is replaced.
func TestCollectorErrors(t *testing.T) {
	c := &Collector{Dir: t.TempDir(), Layers: [][]Linear{{{Name: "mlp", Width: 2, Modules: []string{"mlp"}}}}}
	x := tensor.New(1, 2)
	x.Data[1] = float32(math.Inf(1))
	if err := c.Add("mlp", x); err == nil || !strings.Contains(err.Error(), "mlp: it is NaN or infinite") {
		t.Errorf("got %v", err)
	}
	c = &Collector{Dir: t.TempDir(), Layers: c.Layers}
	if err := c.Add("mlp", tensor.New(1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "mlp is zero for every token") {
		t.Errorf("got %v", err)
	}
	c = &Collector{Dir: t.TempDir(), Layers: c.Layers}
	x.Data[1] = 1
	for range 2 { // a layer may be repeated
		if err := errors.Join(c.Add("mlp", x), c.Finish(t.Context(), 0)); err != nil {
			t.Fatal(err)
		}
	}
	taken := filepath.Join(c.Dir, "taken")
	c.Out = taken
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Join(t.Context()); !errors.Is(err, fs.ErrExist) || string(read(t, taken)) != "mine" {
		t.Errorf("got %v, and %q", err, read(t, taken))
	}
	c.Out = filepath.Join(c.Dir, "out")
	if err := os.WriteFile(joiningPath(c.Out), []byte("of a run that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Inputs[0].Hessian(); err == nil || !strings.Contains(err.Error(), "--hessian") {
		t.Errorf("got %v", err)
	}
}

// TestExperts: an expert leans on all experts of its layer by as much as it has few tokens: on the products of their columns
// if these are those of the residual stream, otherwise on their mean square. One without tokens has nothing else.
func TestExperts(t *testing.T) {
	const cols = 8
	linear := func(name, kind string) Linear {
		return Linear{Name: name, Width: cols, Modules: []string{name}, Kind: kind, Stream: kind == "up"}
	}
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &Collector{Dir: filepath.Dir(path), Out: path, Hessian: true, Layers: [][]Linear{
		{linear("q", "")}, {linear("0.up", "up"), linear("0.down", "down"), linear("1.up", "up"), linear("1.down", "down"), linear("2.up", "up"),
			linear("2.down", "down")},
	}}
	inputs := map[string]tensor.Dense{}
	add := func(name string, n int) {
		x := tensor.New(n, cols)
		for i := range x.Data {
			x.Data[i] = float32(math.Sin(float64(i*i+7*len(name)+n))) * float32(i%cols+1)
		}
		inputs[name] = x
		if err := c.Add(name, x); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Finish(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "the model did not compute q") {
		t.Errorf("got %v", err)
	}
	if err := c.Finish(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "no token reaches 0.up and the other experts") {
		t.Errorf("got %v", err)
	}
	add("q", 5)
	if err := c.Finish(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"0.up": 6, "0.down": 6, "1.up": 2, "1.down": 2, "router": 3} {
		add(name, n)
	}
	if err := errors.Join(c.Finish(t.Context(), 1), c.Join(t.Context())); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if most, header := c.FileBytes(), int64(4096); info.Size() > most+header {
		t.Errorf("the file has %d bytes, more than the %d predicted", info.Size(), most)
	}
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, ok := s.Of("router"); ok || len(s.Inputs) != 7 {
		t.Errorf("got %d inputs, want 7, none of the router", len(s.Inputs))
	}
	product := func(names []string, i, j int) (sum float64) {
		tokens := 0
		for _, name := range names {
			for row := range inputs[name].Rows {
				sum += float64(inputs[name].At(row, i)) * float64(inputs[name].At(row, j))
			}
			tokens += inputs[name].Rows
		}
		return sum / float64(tokens)
	}
	const m = priorShare * cols
	for _, kind := range []string{"up", "down"} {
		all, trace := []string{"0." + kind, "1." + kind}, 0.0
		for i := range cols {
			trace += product(all, i, i) / cols
		}
		for expert, n := range map[string]float64{"0.": 6, "1.": 2, "2.": 0} {
			in, ok := s.Of(expert + kind)
			if !ok || !in.IsExpert() || in.Tokens != int64(n) || in.Width() != cols || !in.HasHessian() || in.Amax <= 0 {
				t.Fatalf("got %+v", in)
			}
			h, err := in.Hessian()
			if err != nil {
				t.Fatal(err)
			}
			for i := range cols {
				for j := i; j < cols; j++ {
					prior := product(all, i, j)
					if kind == "down" {
						prior = 0
						if i == j {
							prior = trace
						}
					}
					want := prior
					if n > 0 {
						want = (n*product([]string{expert + kind}, i, j) + m*prior) / (n + m)
					}
					if math.Abs(float64(h[0])-want) > 1e-4 || i == j && math.Abs(float64(h[0]-in.Square[i])) > 1e-6*want {
						t.Errorf("%s%s: columns %d and %d: got %g, want %g; mean square %g", expert, kind, i, j, h[0], want, in.Square[i])
					}
					h = h[1:]
				}
			}
		}
	}
	if got, want := most(c), int64(6+1+1)*(24*cols+8*cols*cols)+16*cols; got != want { // no products of all down
		t.Errorf("the sums of a layer take %d bytes by the prediction, want %d", got, want)
	}
	if q, _ := s.Of("q"); q.IsExpert() || math.Abs(float64(q.Square[0])-product([]string{"q"}, 0, 0)) > 1e-6 {
		t.Errorf("the input of q leans on others: %+v", q)
	}
	if a, _ := s.Of("2.down"); a.Amax != max(s.modules["0.down"].Amax, s.modules["1.down"].Amax) {
		t.Errorf("an expert without tokens has the amax %g", a.Amax)
	}
}

// TestPanels compares products of more columns than a panel has with those of float64.
func TestPanels(t *testing.T) {
	const rows, cols = 5, 2*panelColumns + 7
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(math.Sin(float64(i*i%1013))) * float32(i%cols%9+1)
	}
	original := tensor.New(rows, cols)
	for i, v := range x.Data {
		original.Data[i] = v + float32(math.Cos(float64(i)))
	}
	s := (&Collector{Hessian: true}).newSums(cols, true)
	for range 2 {
		if err := s.add(original, x, x, 2); err != nil {
			t.Fatal(err)
		}
	}
	for i := range cols {
		for j := i; j < cols; j++ {
			want := 0.0
			for row := range rows {
				want += 2 * float64(x.At(row, i)) * float64(x.At(row, j))
			}
			if got := s.hessian[i*cols+j]; math.Abs(got-want) > 1e-3 {
				t.Fatalf("columns %d and %d: got %g, want %g", i, j, got, want)
			}
		}
		for j := range cols {
			want := 0.0
			for row := range rows {
				want += 2 * math.Cos(float64(row*cols+i)) * float64(x.At(row, j))
			}
			if got := s.drift[i*cols+j]; math.Abs(got-want) > 1e-3 {
				t.Fatalf("drift of column %d and column %d: got %g, want %g", i, j, got, want)
			}
		}
	}
}

// TestPasses: with memory for one expert at a time, the text is read several times, and the file is the same.
func TestPasses(t *testing.T) {
	const cols, experts = 6, 5
	var layer []Linear
	layer = append(layer, Linear{Name: "q", Width: cols, Modules: []string{"q"}, Activations: quant.NVFP4})
	for e := range experts {
		for _, kind := range []string{"up", "down"} {
			name := string(rune('0'+e)) + "." + kind
			layer = append(layer, Linear{Name: name, Width: cols, Modules: []string{name}, Kind: kind, Stream: kind == "up"})
		}
	}
	file := func(memory int64) ([]byte, *Collector) {
		c := &Collector{Dir: t.TempDir(), Hessian: true, Memory: memory, Layers: [][]Linear{layer, {layer[0]}}}
		c.Out = filepath.Join(c.Dir, "statistics.safetensors")
		for i := range c.Layers {
			for range c.Passes(i) {
				for _, l := range layer {
					x := tensor.New(4, cols)
					for j := range x.Data {
						x.Data[j] = float32(math.Sin(float64(j*j + 7*len(l.Name) + int(l.Name[0]))))
					}
					if l.Name == "3.up" || l.Name == "3.down" { // without tokens
						continue
					}
					if err := c.Add(l.Name, x); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Finish(t.Context(), i); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(c.Join(t.Context()), c.Remove()); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) != 1 {
			t.Errorf("%v are left (%v)", entries, err)
		}
		return read(t, c.Out), c
	}
	want, all := file(0)
	if all.Passes(0) != 1 {
		t.Fatalf("%d passes", all.Passes(0))
	}
	for memory, passes := range map[int64]int{1: 2*experts + 1, most(all): 1, most(all) - 1: 2} {
		got, c := file(memory)
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes of memory: another file", memory)
		}
		if c.Passes(0) != passes || c.Passes(1) != 1 || memory > 1 && most(c) > memory {
			t.Errorf("%d bytes of memory: %d passes that take %d bytes, want %d passes", memory, c.Passes(0), most(c), passes)
		}
	}
}

// most returns the memory of a collector at the end of its largest pass.
func most(c *Collector) int64 {
	_, after := c.Bytes(512)
	return after
}
