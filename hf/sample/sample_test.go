package sample

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// golden lists the SHA-256 of every file of the sample. Results in the documentation are
// measured on these bytes.
var golden = map[string]string{
	"README.md":                        "090e16ede739362fa6e867dc5b37faa280e29ce6983fad17482170ae74be31da",
	"config.json":                      "b1dcac3582218cfa26da721b4adad5d7591e2229428c98bb1703df9a8b4aeb48",
	"generation_config.json":           "e7255dac0dd96b23b2d0aceb95ea90e9be188a3a2b6c0516ba3450a8932ae9c3",
	"model-00001-of-00002.safetensors": "0461dda9daa67a6977713e4b3bbf9061126de2507d180112cd665d52044a8caf",
	"model-00002-of-00002.safetensors": "fbbe8b33aeab07e447646081cf9f5843a8a092f972cca741f5ffa47f5499b6b2",
	"model.safetensors.index.json":     "409b8e77d1b764a9bb84057791425a795a6ba6d8725d5f01cd66ed062bbe8a34",
	"tokenizer_config.json":            "54c3233f31bf1c402d1fda23915cc10672aa90ed27799860d776d1408540d526",
}

func TestSameBytesEverywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "Write")
	if err := Write(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != golden[e.Name()] {
			t.Errorf("%q: %q, want %q", e.Name(), got, golden[e.Name()])
		}
	}
	if len(entries) != len(golden) {
		t.Errorf("%d files, want %d", len(entries), len(golden))
	}

	if err := Write(context.Background(), dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("writing over a sample: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := Open(context.Background(), Name)
	if err != nil {
		t.Fatal(err)
	}
	if c.Path != Name || c.Single || c.TorchDtype() != "bfloat16" || len(c.Shards()) != shards {
		t.Errorf("Path %s, Single %t, dtype %s, %d shards", c.Path, c.Single, c.TorchDtype(), len(c.Shards()))
	}
	m, err := readModel()
	if err != nil {
		t.Fatal(err)
	}
	parameters := int64(0)
	for _, w := range m.tensors() {
		got, ok := c.Lookup(w.name)
		if !ok || got.Dtype != safetensors.BF16 || fmt.Sprint(got.Shape) != fmt.Sprint(w.shape()) {
			t.Errorf("%s: %v", w.name, got.TensorInfo)
		}
		parameters += got.Elements()
	}
	if want := 9*m.Layers + 3; len(c.Tensors()) != want || parameters != 9_737_088 {
		t.Errorf("%d tensors of %d parameters, want %d of 9737088", len(c.Tensors()), parameters, want)
	}
	siblings := map[string]bool{}
	for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
		s, ok := c.Lookup("model.layers.3.self_attn." + name + ".weight")
		siblings[s.Shard.Name] = ok
	}
	if len(siblings) != shards {
		t.Errorf("q_proj, k_proj and v_proj of layer 3 are in %v, want two shards", siblings)
	}
	if len(c.Others()) != 3 || len(c.Extra()) != 0 || len(c.Skipped()) != 0 {
		t.Errorf("others %v, extra %v, skipped %v", c.Others(), c.Extra(), c.Skipped())
	}
	if n := temporary(t); n != 1 {
		t.Errorf("%d temporary directories while the sample is open", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := temporary(t); n != 0 {
		t.Errorf("%d temporary directories after Close", n)
	}
}

// endsAfter is a context that ends after n calls of Err.
type endsAfter struct {
	context.Context
	n int
}

func (c *endsAfter) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestOpenInterrupted ends the context before the first tensor, in each shard, and before the
// last tensor, and checks that no files remain.
func TestOpenInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m, err := readModel()
	if err != nil {
		t.Fatal(err)
	}
	tensors := len(m.tensors())
	for _, n := range []int{0, 1, tensors - 1} {
		c, err := Open(&endsAfter{context.Background(), n}, Name)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), Name) {
			t.Errorf("after %d of %d tensors: error %v", n, tensors, err)
		}
		if left := temporary(t); left != 0 {
			t.Errorf("after %d of %d tensors: %d temporary directories are left", n, tensors, left)
		}
	}
}

// temporary returns the number of entries in the directory for temporary files.
func temporary(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOpenErrors(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	t.Setenv("TMPDIR", gone)
	for _, test := range []struct{ name, source, want string }{
		{"more", "sample:large", "sample:large: there is only one sample: use sample: alone"},
		{"path", gone, gone + ": no such file or directory: name a checkpoint directory or file"},
		{"no-temporary", Name, "the sample needs a directory for temporary files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := Open(context.Background(), test.source)
			if err == nil {
				c.Close()
				t.Fatal("no error")
			}
			if !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestPartOfSampleDoesNotOpen checks that an incomplete sample does not open.
func TestPartOfSampleDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	if err := Write(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, safetensors.ShardName(2, 2))); err != nil {
		t.Fatal(err)
	}
	if c, err := hf.Open(dir); err == nil {
		c.Close()
		t.Error("a sample without its second shard opens")
	}
}

// TestNormalMoments checks the moments of the normal numbers. Those of a sum of eight uniform
// ones are 0, 1, 0 and 3 - 6/(5·8); the bounds are five standard errors.
func TestNormalMoments(t *testing.T) {
	const n = 1 << 20
	s := newStream("moments")
	var sum [5]float64
	for i := range uint64(n) {
		x, power := s.normal(i), 1.0
		for k := range sum {
			sum[k] += power
			power *= x
		}
	}
	for k, want := range []float64{1, 0, 1, 0, 2.85} {
		bound := 5 * []float64{0, 1, 1.37, 3.7, 9}[k] / math.Sqrt(n)
		if got := sum[k] / n; math.Abs(got-want) > bound {
			t.Errorf("moment %d is %f, want %f ± %f", k, got, want, bound)
		}
	}
}

// TestOutliers checks that each matrix has a few input channels, and some a few rows, with a
// root mean square many times the median.
func TestOutliers(t *testing.T) {
	m, err := readModel()
	if err != nil {
		t.Fatal(err)
	}
	largeRows, allRows := 0, 0
	for _, w := range m.tensors() {
		if w.norm {
			continue
		}
		data, err := w.bytes()
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, w.rows*w.cols)
		if err := tensor.FromBytes(values, data, format.BF16); err != nil {
			t.Fatal(err)
		}
		rows, channels := make([]float64, w.rows), make([]float64, w.cols)
		for i, v := range values {
			channels[i%w.cols] += float64(v) * float64(v)
		}
		ordinary := 4 * median(channels) // large channels would hide the rows
		for i, v := range values {
			if channels[i%w.cols] < ordinary {
				rows[i/w.cols] += float64(v) * float64(v)
			}
		}
		// Channels from 8 to 20 times, rows from 2 to 6 times, with room for the
		// spread of the others and for chance.
		if few := timesMedian(channels, 6); few == 0 || few > w.cols/16 {
			t.Errorf("%s: %d of %d channels are large", w.name, few, w.cols)
		}
		if most := timesMedian(channels, 28); most > 0 {
			t.Errorf("%s: %d channels are more than 28 times the median", w.name, most)
		}
		if most := timesMedian(rows, 9); most > 0 {
			t.Errorf("%s: %d rows are more than 9 times the median", w.name, most)
		}
		largeRows += timesMedian(rows, 2.5)
		allRows += w.rows
	}
	if largeRows == 0 || largeRows > allRows/64 {
		t.Errorf("%d of %d rows are large", largeRows, allRows)
	}
}

// timesMedian counts the sums of squares whose root is more than the given multiple of the
// median's.
func timesMedian(squares []float64, multiple float64) int {
	bound := median(squares) * multiple * multiple
	n := 0
	for _, s := range squares {
		if s > bound {
			n++
		}
	}
	return n
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func BenchmarkWeights(b *testing.B) {
	m, err := readModel()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, w := range m.tensors() {
			if _, err := w.bytes(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
