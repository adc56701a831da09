package quant

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// importances returns weights over eight binades, some of which are zero.
func importances(n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(math.Exp2(float64(i*7%9-4))) * float32(i%5)
	}
	return w
}

// TestImportanceThreads compares weighted searches with the reference, whole and divided, rowwise and
// columnwise.
func TestImportanceThreads(t *testing.T) {
	x := searchSource(64, 192, false)
	for i, q := range searchQuantizers() {
		if q.Format.Block.Rows > 1 && q.Format.Block.Cols > 64 || i%slow.Stride(1, 9) > 0 { // blocks of 128×128
			continue
		}
		for d, n := range map[Direction]int{Rowwise: x.Cols, Columnwise: x.Rows} {
			with := With{Importance: importances(n)}
			want := made(q.Reference(x, d, with))
			for _, threads := range []int{1, 3} {
				with.Threads = threads
				got := made(quantizeOne(q, x, d, with))
				if !bytes.Equal(got.ScaleBytes(), want.ScaleBytes()) || !bytes.Equal(got.Codes, want.Codes) {
					t.Errorf("%s, %s, %d threads: differs from the reference", searchName(q), d, threads)
				}
			}
			plain := with
			plain.Importance = nil
			if made(q.Reference(x, d, plain)); q.Format == NVFP4 && bytes.Equal(made(q.Reference(x, d, plain)).Codes, want.Codes) {
				t.Errorf("%s, %s: importance changes nothing", searchName(q), d)
			}
		}
	}
}

// TestImportanceOfOnes: equal weights are none.
func TestImportanceOfOnes(t *testing.T) {
	x := searchSource(16, 64, false)
	ones := make([]float32, x.Cols)
	for i := range ones {
		ones[i] = 4
	}
	for _, q := range searchQuantizers() {
		got, want := made(q.Rowwise(x, With{Importance: ones})), made(q.Rowwise(x, With{}))
		if !bytes.Equal(got.ScaleBytes(), want.ScaleBytes()) || !bytes.Equal(got.Codes, want.Codes) {
			t.Errorf("%s: differs", searchName(q))
		}
	}
}

// TestImportanceErrors rejects weights that do not fit.
func TestImportanceErrors(t *testing.T) {
	q := Quantizer{Format: NVFP4, Search: LeastSquares}
	for want, weights := range map[string][]float32{
		"got 15 values, want 16":     make([]float32, 15),
		"is negative or not finite":  append(make([]float32, 15), -1),
		"is negative or not finite ": append(make([]float32, 15), float32(math.NaN())),
	} {
		if _, err := q.Rowwise(tensor.New(1, 16), With{Importance: weights}); err == nil || !strings.Contains(err.Error(),
			strings.TrimSpace(want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestRounder rounds each element of a tensor again, which changes nothing, and other values as a new
// tensor of the same scales would.
func TestRounder(t *testing.T) {
	x := searchSource(7, 80, false)
	for _, q := range searchQuantizers() {
		if q.Format.Scale == format.F32 || q.Format.Block.Rows != 1 {
			if _, err := q.Rounder(made(q.Rowwise(x, With{}))); err == nil {
				t.Errorf("%s: no error", searchName(q))
			}
			continue
		}
		tensor := made(q.Rowwise(x, With{}))
		r, err := q.Rounder(tensor)
		if err != nil {
			t.Fatal(err)
		}
		again, values := made(q.Rowwise(x, With{})), tensor.Dequantize(1)
		clear(again.Codes)
		to, err := q.Rounder(again)
		if err != nil {
			t.Fatal(err)
		}
		codes := make([]byte, x.Cols)
		for row := range x.Rows {
			for col := range codes {
				code, value := r.Round(row, col, x.At(row, col))
				if codes[col] = code; value != values.At(row, col) {
					t.Fatalf("%s: element %d, %d: got %g, want %g", searchName(q), row, col, value, values.At(row, col))
				}
			}
			to.SetRow(row, codes)
		}
		if !bytes.Equal(again.Codes, tensor.Codes) {
			t.Errorf("%s: codes differ", searchName(q))
		}
	}
	q := Quantizer{Format: NVFP4}
	other := made(q.Rowwise(x, With{}))
	other.Global *= 2
	if _, err := q.Rounder(other); err == nil || !strings.Contains(err.Error(), "another quantizer made it") {
		t.Errorf("got %v", err)
	}
}
