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

	"github.com/microscale-go/microscale/tensor"
)

// collect reads the rows of x, in windows of a number of rows, as the input of one layer, and returns the file
// of its statistics.
func collect(t *testing.T, x tensor.Dense, window, threads int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &Collector{Dir: filepath.Dir(path), Hessian: true, Threads: threads, Modules: func(linear string) []string { return []string{linear + ".a", linear + ".b"} }}
	for layer := range 2 {
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
	if err := c.Join(t.Context(), path, 2); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(2); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) != 1 {
		t.Fatalf("files %v are left (%v)", entries, err)
	}
	return path
}

// TestCollector compares the sums with those of float64, one element after another.
func TestCollector(t *testing.T) {
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
	c := &Collector{Dir: t.TempDir(), Modules: func(linear string) []string { return []string{linear} }}
	x := tensor.New(1, 2)
	x.Data[1] = float32(math.Inf(1))
	if err := c.Add("mlp", x); err == nil || !strings.Contains(err.Error(), "mlp: it is NaN or infinite") {
		t.Errorf("got %v", err)
	}
	c = &Collector{Dir: t.TempDir(), Modules: c.Modules}
	if err := c.Add("mlp", tensor.New(1, 2)); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "mlp is zero for every token") {
		t.Errorf("got %v", err)
	}
	c = &Collector{Dir: t.TempDir(), Modules: c.Modules}
	x.Data[1] = 1
	for range 2 { // a layer may be repeated
		if err := errors.Join(c.Add("mlp", x), c.Finish(t.Context(), 0)); err != nil {
			t.Fatal(err)
		}
	}
	taken := filepath.Join(c.Dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Join(t.Context(), taken, 1); !errors.Is(err, fs.ErrExist) || string(read(t, taken)) != "mine" {
		t.Errorf("got %v, and %q", err, read(t, taken))
	}
	if err := os.WriteFile(c.whole(), []byte("of a run that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Join(t.Context(), filepath.Join(c.Dir, "out"), 1); err != nil {
		t.Fatal(err)
	}
	s, err := Read(filepath.Join(c.Dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Inputs[0].Hessian(); err == nil || !strings.Contains(err.Error(), "--hessian") {
		t.Errorf("got %v", err)
	}
}
