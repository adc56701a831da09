package bench

import (
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestSweep checks that points are indexed by size and format, that both operands are
// quantized from BF16, and that formats without scales have nothing to quantize.
func TestSweep(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		formats, sizes := []quant.Format{quant.BF16, quant.MXFP4}, []int{32, 64, 96}
		var done []int
		s, err := team.Sweep(&Memory{}, formats, sizes, 0, func(size int) { done = append(done, size) })
		if err != nil || len(s.Points) != len(sizes) || !slices.Equal(done, sizes) {
			t.Fatalf("got %d sizes, progress %v, %v", len(s.Points), done, err)
		}
		for i, n := range sizes {
			for j, f := range formats {
				p := s.Points[i][j]
				if p.Gemm.Format != f.Name || p.Gemm.Source != f.Name || p.Gemm.M != n || p.Gemm.N != n || p.Gemm.K != n || !(p.Gemm.Fraction() > 0) {
					t.Errorf("size %d, %s: got product %+v", n, f, p.Gemm)
				}
				if q := p.Quantize; f.Scaled() && (q.Source != "bf16" || q.Format != f.Name || q.M != 2*n || q.K != n || q.Work != float64(2*2*n*n) ||
					!(q.Rate() > 0)) || !f.Scaled() && q != (Result{}) {
					t.Errorf("size %d, %s: got quantizing %+v", n, f, q)
				}
			}
		}
		for j, f := range formats {
			for i, m := range fewRows {
				if r := s.Few[j][i]; r.M != m || r.N != 96 || r.K != 96 || r.Format != f.Name || r.Source != "bf16" || r.Work != float64(2*m*96*96) {
					t.Errorf("%d rows of %s: got %+v", m, f, r)
				}
			}
		}
		if s.Memory.Op != "read" || len(s.Peaks) == 0 || len(s.Results()) != len(sizes)*3+len(formats)*len(fewRows)+len(s.Peaks)+1 {
			t.Errorf("got limits %+v, %+v and %d results", s.Memory, s.Peaks, len(s.Results()))
		}
		r := s.Speed("command", "version")
		if r.Baseline != "bf16" || len(r.Series) != 2 || len(r.Ceilings) != len(s.Peaks) || !(r.Bandwidth > 0) {
			t.Fatalf("got report %+v", r)
		}
		p := r.Series[1].Points[2]
		if want := s.Points[2][1]; p.Size != 96 || p.Product != want.Gemm.Time.Median || p.Quantize != want.Quantize.Time.Median {
			t.Errorf("got point %+v of the report, want %+v", p, want)
		}
	})
}

// TestIntensity compares the bytes of a product with those of its tensors.
func TestIntensity(t *testing.T) {
	x := tensor.New(96, 64)
	q, err := quant.Quantizer{Format: quant.NVFP4}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	r := rate(Result{M: 96, N: 96, K: 64, Time: Sample{Median: 2}}, quant.NVFP4, quant.NVFP4)
	bytes := 2*(len(q.Codes)+len(q.ScaleBytes())) + 4*96*96
	if want := 2. * 96 * 96 * 64; r.Operations != want/2 || math.Abs(r.Intensity-want/float64(bytes)) > 1e-12 {
		t.Errorf("got %+v, want %g operations per second and %g per byte", r, want/2, want/float64(bytes))
	}
}

// TestFillBF16 checks that the bytes are those of the float32 values, rounded.
func TestFillBF16(t *testing.T) {
	values, x := make([]float32, 100), make([]byte, 200)
	fill(values)
	fillBF16(x)
	for i, v := range values {
		if got, want := uint32(x[2*i])|uint32(x[2*i+1])<<8, format.BF16.Encode(v); got != want {
			t.Fatalf("value %d: got %#x, want %#x", i, got, want)
		}
	}
}
