package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestBytes compares the computed sizes of conversions with those of quantized tensors.
func TestBytes(t *testing.T) {
	for _, f := range quant.Formats() {
		for _, shape := range [][2]int{{1, 32}, {3, 64}, {130, 200}, {256, 256}} {
			c := Conversion{Format: f, Source: format.F32, Rows: shape[0], Cols: shape[1]}
			q, err := quant.Quantizer{Format: f}.Rowwise(tensor.New(c.Rows, c.Cols), quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := c.formatBytes(), len(q.Codes)+len(q.ScaleBytes()); got != want {
				t.Errorf("%d×%d of %s: got %d bytes, want %d", c.Rows, c.Cols, f, got, want)
			}
			if got, want := c.sourceBytes(), 4*c.Rows*c.Cols; got != want {
				t.Errorf("%d×%d of f32: got %d bytes, want %d", c.Rows, c.Cols, got, want)
			}
		}
	}
}

// TestReads checks that only a scale for the whole tensor needs a second read.
func TestReads(t *testing.T) {
	for _, f := range quant.Formats() {
		want := 1
		if f.Name == "fp8-tensor" {
			want = 2
		}
		if got := (Conversion{Format: f}).reads(); got != want {
			t.Errorf("%s: got %d reads of the source, want %d", f, got, want)
		}
	}
}

// TestConversions measures every format in both directions, on tiny matrices.
func TestConversions(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		teams(t, func(t *testing.T, team *Team) {
			for _, f := range quant.Formats() {
				c := Conversion{Format: f, Source: format.F32, Rows: 5, Cols: 70}
				bf16 := c
				bf16.Source = format.BF16
				if list, err := team.Quantize(&Memory{}, bf16, 0); err != nil || list[0].Source != "bf16" || list[0].Work != 2*5*70 {
					t.Errorf("quantize %s from bf16: %+v, %v", f, list, err)
				}
				for op, measure := range map[string]func(*Team, *Memory, Conversion) ([]Result, error){
					"quantize":   func(t *Team, m *Memory, c Conversion) ([]Result, error) { return t.Quantize(m, c, 0) },
					"dequantize": func(t *Team, m *Memory, c Conversion) ([]Result, error) { return t.Dequantize(m, c, 0) },
				} {
					list, err := measure(team, &Memory{}, c)
					if err != nil || len(list) != 2 {
						t.Fatalf("%s %s: %d results, %v", op, f, len(list), err)
					}
					r := list[0]
					if r.Op != op || r.Format != f.Name || r.Source != "f32" || r.M != 5 || r.K != 70 || r.Threads != team.Threads() || r.Unit != Bytes ||
						r.Work != 4*5*70 || !(r.Fraction() > 0) || r.LimitBy == "" {
						t.Errorf("%s %s: %+v", op, f, r)
					}
					if list[1].Op != "stream" || !math.IsNaN(list[1].Limit) {
						t.Errorf("%s %s is bounded by %+v", op, f, list[1])
					}
				}
			}
		})
	})
}

// TestPasses checks that the passes over a matrix visit each row once and are aligned to
// blocks.
func TestPasses(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		team := &Team{members: make([]member, threads)}
		for _, tc := range []struct{ passes, rows, grain int }{{1, 5, 1}, {3, 100, 1}, {3, 100, 16}, {7, 5, 1}, {2, 300, 128}} {
			end := 0
			for i := range tc.passes {
				for w := range threads {
					from, to := team.chunk(w, i, tc.passes, tc.rows, tc.grain)
					if from != end || to < from || from%tc.grain != 0 && from != tc.rows {
						t.Errorf("%+v, %d threads: pass %d of worker %d is [%d, %d) after %d", tc, threads, i, w, from, to, end)
					}
					end = to
				}
			}
			if end != tc.rows {
				t.Errorf("%+v, %d threads: %d rows", tc, threads, end)
			}
		}
	}
}

// TestView compares views of tensors with slices of them.
func TestView(t *testing.T) {
	for _, f := range quant.Formats() {
		x := tensor.New(300, 70)
		fill(x.Data)
		whole, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range [][2]int{{0, 128}, {128, 300}, {256, 300}, {0, 300}} {
			want, err := whole.SliceRows(rows[0], rows[1])
			if err != nil {
				t.Fatal(err)
			}
			got := view(whole, rows[0], rows[1])
			if !bytes.Equal(got.Codes, want.Codes) || !bytes.Equal(got.ScaleBytes(), want.ScaleBytes()) || got.Global != want.Global ||
				fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
				t.Errorf("rows %v of %s differ", rows, f)
			}
		}
	}
}

// TestProducts measures products of every format on tiny matrices.
func TestProducts(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		teams(t, func(t *testing.T, team *Team) {
			for _, f := range quant.Formats() {
				for _, packed := range []bool{false, true} {
					p := Product{A: f, B: f, M: 3, N: 5, K: 64, Packed: packed}
					list, err := team.Gemm(p, 0)
					if err != nil || len(list) != 2 {
						t.Fatalf("%+v: %d results, %v", p, len(list), err)
					}
					r := list[0]
					if r.Op != "gemm" || r.Format != f.Name || r.M != 3 || r.N != 5 || r.K != 64 || r.Threads != team.Threads() ||
						r.Unit != list[1].Unit || r.Work != 2*3*5*64 || !(r.Fraction() > 0) || list[1].Op != "peak" {
						t.Errorf("%+v: %+v", p, r)
					}
					if !slices.ContainsFunc(gemm.Kernels(), func(k gemm.Kernel) bool { return k.Name == r.Kernel }) {
						t.Errorf("got kernel %s, which is in no table", r.Kernel)
					}
				}
			}
		})
	})
}

// TestUnfusedBits checks that the separate passes give the quantizer's bits.
func TestUnfusedBits(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range quant.Formats() {
			x := tensor.New(7, 96)
			if (Conversion{Format: f, Source: format.F32, Rows: x.Rows, Cols: x.Cols}).Separable() != nil {
				continue
			}
			fill(x.Data)
			clear(x.Row(3)[:f.Block.Cols])
			if !f.Global { // beside such a value all other blocks of a tensor are zeros
				x.Row(4)[5] = 1e20
			}
			u, err := newUnfused(x, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, pass := range []func(from, to int) error{u.amax, u.scale, u.cast} {
				for _, rows := range [][2]int{{0, 3}, {3, 7}} {
					if err := pass(rows[0], rows[1]); err != nil {
						t.Fatal(err)
					}
				}
			}
			q, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(u.codes.Codes, q.Codes) || !bytes.Equal(u.scales, q.Scales) {
				t.Errorf("%s: codes or scales differ from the quantizer's", f)
			}
		}
	})
}

// TestQuantizeRowwiseColumnwise checks the result and its limit, with rows for some threads only.
func TestQuantizeRowwiseColumnwise(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		for _, source := range []*format.Scalar{format.F32, format.BF16} {
			for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.FP8Row, quant.FP8Tensor, quant.FP8Block, quant.BF16} {
				list, err := team.QuantizeRowwiseColumnwise(&Memory{}, Conversion{Format: f, Source: source, Rows: 130, Cols: 70}, 0)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) != 2 || list[0].Op != "quantize" || !strings.Contains(list[0].LimitBy, "rowwise and columnwise") ||
					list[1].Op != "stream" || !(list[0].Limit > 0) || !(list[0].Rate() > 0) {
					t.Errorf("%s from %s: measured %+v", f, source, list)
				}
			}
		}
	})
}

func TestUnfused(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		list, err := team.Unfused(&Memory{}, Conversion{Format: quant.MXFP4, Source: format.F32, Rows: 4, Cols: 64}, 0)
		if err != nil {
			t.Fatal(err)
		}
		var ops []string
		for _, r := range list {
			ops = append(ops, r.Op)
		}
		if fmt.Sprint(ops) != "[quantize amax scale cast quantize stream]" {
			t.Errorf("measured %v", ops)
		}
		if sum := list[1].Time.Median + list[2].Time.Median + list[3].Time.Median; math.Abs(list[0].Time.Median-sum) > 1e-9*sum {
			t.Errorf("three passes of %v s take %v s", sum, list[0].Time.Median)
		}
		for _, c := range []Conversion{
			{Format: quant.FP8Row, Source: format.F32, Rows: 4, Cols: 64},
			{Format: quant.NVFP4, Source: format.F32, Rows: 4, Cols: 72},
			{Format: quant.MXFP8x32, Source: format.F32, Rows: 4, Cols: 64},
			{Format: quant.MXFP8, Source: format.F32, Rows: 4, Cols: 65},
		} {
			if _, err := team.Unfused(&Memory{}, c, 0); err == nil {
				t.Errorf("%+v: got no error from Unfused", c)
			}
		}
	})
}
