package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/tensor"
)

// plainly runs body with the plain form forced.
func plainly(t testing.TB, body func()) {
	t.Helper()
	before := cpu.Best()
	if err := cpu.Force(cpu.Plain); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cpu.Force(before); err != nil {
			t.Fatal(err)
		}
	}()
	body()
}

// eachKernel runs body in every tier but the plain one, which it is compared with.
func eachKernel(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	cputest.Vectors(t, func(t *testing.T, tier cpu.Tier) {
		if tier != cpu.Plain {
			body(t)
		}
	})
}

// kernelQuantizers are quantizers that kernels serve, each rule and arithmetic
// of each format.
func kernelQuantizers() []Quantizer {
	var list []Quantizer
	for _, f := range Formats() {
		switch f.Scale {
		case format.E8M0:
			for _, rule := range ScaleRules() {
				list = append(list, Quantizer{Format: f, Rule: rule})
			}
			list = append(list,
				Quantizer{Format: f, ExactRatio: true},
				Quantizer{Format: f, Rule: Even, EvenMantissa: 1},
				Quantizer{Format: f, NonFinite: Poison},
				Quantizer{Format: f, ElementNaN: format.KeepSign})
		case nil:
		default:
			for a := range Arithmetic(len(arithmetics)) {
				list = append(list, Quantizer{Format: f, Arithmetic: a})
			}
			if f.Scale == format.F32 {
				list = append(list, Quantizer{Format: f, PowerOfTwo: true}, Quantizer{Format: f, NonFinite: Poison})
			}
		}
	}
	odd := MXFP4
	odd.Name, odd.Block = "e2m1 in 48s", Shape{1, 48}
	return append(list, Quantizer{Format: odd}, Quantizer{Format: MXFP8, NegativeZero: DropZeroInput})
}

func quantizerName(q Quantizer) string {
	return fmt.Sprintf("format=%s/rule=%s/exact=%v/even=%d/arithmetic=%d/pow2=%v/nonfinite=%d/nan=%d/zero=%d",
		q.Format, q.Rule, q.ExactRatio, q.EvenMantissa, q.Arithmetic, q.PowerOfTwo, q.NonFinite, q.ElementNaN, q.NegativeZero)
}

// edgeBlocks fills x with runs of 16 values of one kind each: like sizes, all
// sizes, zeros, subnormals, the ends of the range, ties of every format, and now
// and then a NaN or an Inf.
func edgeBlocks(x []float32, r *rand.Rand, nonFinite bool) {
	kind, exponent := 0, 0
	for i := range x {
		if i%16 == 0 {
			kind, exponent = r.IntN(9), 1+r.IntN(254)
		}
		bits := uint32(exponent)<<mantissaBits | r.Uint32()&mantissaMask
		switch kind {
		case 0: // one binade
		case 1, 2: // a few, most numbers near 1
			bits = uint32(127-r.IntN(12))<<mantissaBits | r.Uint32()&mantissaMask
		case 3: // all
			bits = uint32(r.IntN(255))<<mantissaBits | r.Uint32()&mantissaMask
		case 4: // short significands: ties, and amaxes at the steps of the rules
			bits = uint32(max(exponent-r.IntN(8), 0))<<mantissaBits | r.Uint32()&mantissaMask>>18<<18
		case 5: // and their neighbors
			bits = uint32(max(exponent-r.IntN(8), 1))<<mantissaBits | r.Uint32()&mantissaMask>>18<<18 + uint32(r.IntN(3)) - 1
		case 6:
			bits = 0
		case 7: // subnormal
			bits &= mantissaMask
		case 8: // the ends
			bits = []uint32{0, 1, exponentMask - 1, 1 << mantissaBits}[r.IntN(4)]
		}
		if nonFinite && r.IntN(2000) == 0 {
			bits = []uint32{exponentMask, exponentMask + 1, absMask}[r.IntN(3)]
		}
		x[i] = math.Float32frombits(bits | r.Uint32()&(1<<31))
	}
}

// sameTensor reports the first difference of two tensors.
func sameTensor(t *testing.T, got, want *Tensor) {
	t.Helper()
	if i := firstDifference(got.Scales, want.Scales); i >= 0 {
		t.Fatalf("scale %d is %#x, want %#x", i, got.Scales[i], want.Scales[i])
	}
	for i, s := range want.Scales32 {
		if g := got.Scales32[i]; math.Float32bits(g) != math.Float32bits(s) {
			t.Fatalf("scale %d is %v, want %v", i, g, s)
		}
	}
	if i := firstDifference(got.Codes, want.Codes); i >= 0 {
		t.Fatalf("byte %d of %d per line is %#x, want %#x", i, want.LineBytes(), got.Codes[i], want.Codes[i])
	}
	if math.Float32bits(got.Amax) != math.Float32bits(want.Amax) || got.Global != want.Global {
		t.Fatalf("amax %v and global scale %v, want %v and %v", got.Amax, got.Global, want.Amax, want.Global)
	}
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestKernelsQuantize: every tier gives the bits of the plain form, for whole
// and broken groups and blocks, and for views with gaps between their rows.
func TestKernelsQuantize(t *testing.T) {
	shapes := [][2]int{{1, 1}, {3, 15}, {2, 33}, {1, 512}, {2, 513}, {5, 96}, {3, 1000}, {9, 2048}, {130, 144}, {4200, 37}}
	r := rand.New(rand.NewPCG(1, 2))
	for _, q := range kernelQuantizers() {
		t.Run(quantizerName(q), func(t *testing.T) {
			var sources []tensor.Dense
			var want []*Tensor
			directions := []func(tensor.Dense, With) (*Tensor, error){q.Rowwise, q.Columnwise}
			for i, shape := range shapes {
				x := tensor.New(shape[0], shape[1]+i%2)
				edgeBlocks(x.Data, r, i%3 != 0)
				x = x.View(0, shape[0], i%2, shape[1]+i%2) // every other one has gaps
				sources = append(sources, x)
				plainly(t, func() {
					for _, d := range directions {
						want = append(want, must(t)(d(x, With{})))
					}
				})
			}
			eachKernel(t, func(t *testing.T) {
				for i, x := range sources {
					for j, d := range directions {
						sameTensor(t, must(t)(d(x, With{})), want[len(directions)*i+j])
					}
				}
			})
		})
	}
}

// TestKernelsBF16: a BF16 source gives the bits of its values in float32, in
// every tier, filled into a tensor that held others.
func TestKernelsBF16(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		r := rand.New(rand.NewPCG(9, 10))
		for _, q := range append(kernelQuantizers(), Quantizer{Format: BF16}, Quantizer{Format: NVFP4, Hadamard: true}) {
			t.Run(quantizerName(q), func(t *testing.T) {
				for i, shape := range [][2]int{{0, 16}, {3, 0}, {3, 16}, {2, 528}, {5, 96}, {9, 2048}, {2, 1008}, {129, 160}} {
					values := make([]float32, shape[0]*(shape[1]+i%2))
					edgeBlocks(values, r, i%3 != 0)
					raw := make([]byte, 2*len(values))
					for j, v := range values {
						binary.LittleEndian.PutUint16(raw[2*j:], uint16(math.Float32bits(v)>>16))
					}
					x := tensor.OfBF16(shape[0], shape[1]+i%2, raw)
					x.Cols = shape[1] // every other one has gaps
					want, err := q.Rowwise(x.Dense(), With{})
					if err != nil {
						t.Fatal(err)
					}
					into := decodeTensor(t, q.Format, shape[0], shape[1], r)
					got, err := q.RowwiseBF16(x, With{Into: into})
					if err != nil {
						t.Fatal(err)
					}
					if got != into {
						t.Fatal("the tensor to fill is not the one returned")
					}
					sameTensor(t, got, want)
					if a, b := AmaxBF16(x, 0), Amax(x.Dense(), 0); a != b {
						t.Errorf("the amax is %v, in float32 %v", a, b)
					}
				}
			})
		}
	})
}

// TestKernelsTraining: stochastic rounding, the Hadamard transform and blocks that
// extend over lines give the bits of the plain form, in both directions.
func TestKernelsTraining(t *testing.T) {
	var list []Quantizer
	for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, NVFP4, FP8Vec128, FP8Row, NVFP4x16, MXFP8x32, FP8Block} {
		list = append(list, Quantizer{Format: f, Rounding: format.Stochastic}, Quantizer{Format: f})
		if f.Block.Cols%hadamardSize == 0 && f.Block.Rows == 1 {
			list = append(list, Quantizer{Format: f, Hadamard: true}, Quantizer{Format: f, Hadamard: true, Rounding: format.Stochastic})
		}
	}
	list = append(list,
		Quantizer{Format: MXFP4, Rounding: format.Stochastic, NonFinite: Poison},
		Quantizer{Format: NVFP4, Rounding: format.Stochastic, Arithmetic: DecodeFirst},
		Quantizer{Format: NVFP4, Rounding: format.Stochastic, NegativeZero: DropNegativeZero},
		Quantizer{Format: MXINT8, Rounding: format.Stochastic})
	random := &Stream{Seed: 0x123456789abcdef0, Step: 7, Tensor: 8, Operand: 3}
	r := rand.New(rand.NewPCG(15, 16))
	for _, q := range list {
		for i, shape := range [][2]int{{1, 16}, {48, 48}, {16, 80}, {33, 50}, {64, 512}, {37, 131}, {160, 272}} {
			if q.Hadamard && (shape[0]%hadamardSize > 0 || shape[1]%hadamardSize > 0) {
				continue
			}
			x := tensor.New(shape[0], shape[1])
			edgeBlocks(x.Data, r, i%2 == 0)
			with := With{Random: random, FirstRow: 3 * i}
			for _, d := range []func(Quantizer, tensor.Dense, With) (*Tensor, error){Quantizer.Rowwise, Quantizer.Columnwise} {
				if q.Hadamard && shape[0] < hadamardSize {
					continue
				}
				var want *Tensor
				plainly(t, func() { want = must(t)(d(q, x, with)) })
				eachKernel(t, func(t *testing.T) { sameTensor(t, must(t)(d(q, x, with)), want) })
			}
		}
	}
}

// must returns a function that fails the test on an error.
func must(t testing.TB) func(*Tensor, error) *Tensor {
	return func(q *Tensor, err error) *Tensor {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
}

// TestBoth: both copies are those that Rowwise and Columnwise return.
func TestBoth(t *testing.T) {
	random := &Stream{Seed: 1}
	cputest.Vectors(t, func(t *testing.T, tier cpu.Tier) {
		r := rand.New(rand.NewPCG(17, 18))
		for _, pair := range [][2]Quantizer{
			{{Format: MXFP8}, {Format: MXFP8}},
			{{Format: MXFP4}, {Format: MXFP8E5M2}},
			{{Format: NVFP4}, {Format: NVFP4, Hadamard: true, Rounding: format.Stochastic}},
			{{Format: FP8Tensor}, {Format: FP8Tensor}},
			{{Format: BF16}, {Format: MXFP8}},
		} {
			for _, shape := range [][2]int{{0, 16}, {16, 16}, {48, 40}, {96, 48}, {160, 2080}, {1088, 1024}} {
				if 4*shape[0]*shape[1] >= streamBytes && tier == cpu.Plain {
					continue // which does not tell large tensors from others
				}
				x := tensor.New(shape[0], shape[1])
				edgeBlocks(x.Data, r, shape[0]%64 > 0)
				row, col := Copy{Quantizer: pair[0]}, Copy{pair[1], With{Random: random}}
				rows, columns, err := Both(x, row, col)
				if err != nil {
					t.Fatal(err)
				}
				sameTensor(t, rows, must(t)(row.Quantizer.Rowwise(x, row.With)))
				sameTensor(t, columns, must(t)(col.Quantizer.Columnwise(x, col.With)))
			}
		}
	})
	if _, _, err := Both(tensor.New(2, 2), Copy{Quantizer: Quantizer{Format: MXFP8}}, Copy{Quantizer: Quantizer{Format: MXFP8, Rounding: format.Stochastic}}); err == nil {
		t.Error("stochastic rounding without a stream")
	}
}

// TestKernelsRandom: bits that are made together are those of each element.
func TestKernelsRandom(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		s := Stream{Seed: 0xfedcba9876543210, Step: 1<<32 - 1, Tensor: 1<<24 - 1, Operand: 127, Direction: Columnwise}
		var room []uint32
		for _, first := range []uint64{0, 1, 3, 1<<34 - 9, 1<<62 + 2} {
			for _, n := range []int{0, 1, 5, 31, 32, 33, 100} {
				c := s.philoxConstants()
				for i, got := range c.bits(&room, first, n) {
					if want := s.At(first + uint64(i)); got != want {
						t.Fatalf("the bits of element %d are %#x, want %#x", first+uint64(i), got, want)
					}
				}
			}
		}
	})
}

// TestKernelsLarge: sources whose codes go past the caches, and that are wider
// than what is quantized at a time.
func TestKernelsLarge(t *testing.T) {
	const rows, cols = 260, 8320
	r := rand.New(rand.NewPCG(13, 14))
	x := tensor.New(rows, cols)
	edgeBlocks(x.Data, r, false)
	x.Set(3, 700, float32(math.Inf(1)))
	x.Set(200, 8200, float32(math.NaN()))
	raw := make([]byte, 2*len(x.Data))
	for i, v := range x.Data {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(math.Float32bits(v)>>16))
	}
	xs := tensor.OfBF16(rows, cols, raw)
	if len(raw) < streamBytes || 4*cols*FP8Block.Block.Rows <= tileBytes/2 {
		t.Fatal("the matrix is too small")
	}
	for _, f := range []Format{MXFP8, MXFP4, MXINT8, NVFP4, FP8Vec128, FP8Row, FP8Block, FP8Tensor} {
		q := Quantizer{Format: f}
		var want, wantRaw *Tensor
		plainly(t, func() {
			want, _ = q.Rowwise(x, With{})
			wantRaw, _ = q.RowwiseBF16(xs, With{})
		})
		eachKernel(t, func(t *testing.T) {
			got, err := q.Rowwise(x, With{})
			if err != nil {
				t.Fatal(err)
			}
			sameTensor(t, got, want)
			if got, err = q.RowwiseBF16(xs, With{}); err != nil {
				t.Fatal(err)
			}
			sameTensor(t, got, wantRaw)
		})
	}
}

// TestIntoApart: what is filled shares no memory with what is read, nor twice; what is
// refused stays as it is.
func TestIntoApart(t *testing.T) {
	const rows, cols, stride = 32, 32, 48
	data := make([]float32, 4096)
	raw := memory.Bytes(data)
	at := func(from, n int) []byte { return raw[from : from+n : from+n] }
	mx := func(d Direction, codes, scales int) *Tensor {
		return &Tensor{Format: MXFP8, Direction: d, Shape: []int{rows, cols}, Codes: at(codes, 1024), Scales: at(scales, 32), Global: 7}
	}
	vec := func(d Direction, codes, scales int) *Tensor { // scales in float32
		return &Tensor{Format: FP8Vec128, Direction: d, Shape: []int{rows, cols}, Codes: at(codes, 32*128), Scales32: data[scales/4:][:32:32], Global: 7}
	}
	const end = 4 * ((rows-1)*stride + cols) // of the matrix in float32, that of BF16 takes half as much
	for _, v := range []struct {
		rows, columns *Tensor
		want          string // empty: all is well
	}{
		{mx(Rowwise, end, end+1024), mx(Columnwise, end+1056, end+2080), ""},
		{mx(Rowwise, end, 4*cols), nil, ""}, // between two rows
		{mx(Rowwise, end-1, 8000), nil, "rowwise: With.Into: its codes share memory with the matrix"},
		{mx(Rowwise, 8000, 4*cols-1), nil, "rowwise: With.Into: its scales share memory with the matrix"},
		{mx(Rowwise, 8000, 9023), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{mx(Rowwise, 8000, 7969), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{nil, mx(Columnwise, 0, 8000), "columnwise: With.Into: its codes share memory with the matrix"},
		{mx(Rowwise, 8000, 9024), mx(Columnwise, 9055, 12000), "columnwise: With.Into: its codes share memory with the scales of the rowwise copy"},
		{mx(Rowwise, 8000, 9024), mx(Columnwise, 10000, 9023), "columnwise: With.Into: its scales share memory with the codes of the rowwise copy"},
		{vec(Rowwise, 6400, 11000), nil, ""},
		{vec(Rowwise, 6400, 10492), nil, "rowwise: With.Into: its codes share memory with its scales"},
		{vec(Rowwise, 6400, end-4), nil, "rowwise: With.Into: its scales share memory with the matrix"},
		{vec(Rowwise, 6400, 11000), vec(Columnwise, 11127, 15300), "columnwise: With.Into: its codes share memory with the scales of the rowwise copy"},
		{vec(Rowwise, 6400, 11000), vec(Columnwise, 12000, 11124), "columnwise: With.Into: its scales share memory with the scales of the rowwise copy"},
	} {
		q := Quantizer{Format: MXFP8}
		if v.rows != nil {
			q.Format = v.rows.Format
		}
		_, _, err := Both(tensor.Dense{Rows: rows, Cols: cols, Stride: stride, Data: data}, Copy{q, With{Into: v.rows}}, Copy{q, With{Into: v.columns}})
		switch {
		case v.want == "" && err != nil:
			t.Error(err)
		case v.want != "" && (err == nil || err.Error() != v.want):
			t.Errorf("the error is %v, not: %s", err, v.want)
		}
		for _, into := range []*Tensor{v.rows, v.columns} {
			if v.want != "" && into != nil && (into.Global != 7 || into.Amax != 0) {
				t.Errorf("what is refused (%s) is changed", v.want)
			}
		}
	}
	x := tensor.OfBF16(rows, cols, at(0, 2*rows*cols))
	if _, err := (Quantizer{Format: MXFP8}).RowwiseBF16(x, With{Into: mx(Rowwise, 2*rows*cols, 8000)}); err != nil {
		t.Error(err)
	}
	if _, err := (Quantizer{Format: MXFP8}).ColumnwiseBF16(x, With{Into: mx(Columnwise, 2*rows*cols-1, 8000)}); err == nil {
		t.Error("codes are written to the matrix")
	}
}

// TestDequantizeDamaged: a damaged tensor panics with what Validate reports, also where
// memory goes on behind what it has.
func TestDequantizeDamaged(t *testing.T) {
	q := Quantizer{Format: MXFP8}
	good := must(t)(q.Rowwise(tensor.New(4, 64), With{}))
	for name, damage := range map[string]func(t *Tensor){
		"codes":     func(t *Tensor) { t.Codes = t.Codes[:len(t.Codes)-1] },
		"scales":    func(t *Tensor) { t.Scales = t.Scales[:len(t.Scales)-1] },
		"shape":     func(t *Tensor) { t.Shape = []int{4, 96} },
		"direction": func(t *Tensor) { t.Direction = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := *good
			damage(&bad)
			for _, decode := range []func(){
				func() { bad.Dequantize(1) },
				func() { bad.DequantizeLines(tensor.New(4, 64), 0, 1) },
			} {
				func() {
					defer func() {
						if said := recover(); said == nil || fmt.Sprint(said) != "quant: "+bad.Validate().Error() {
							t.Errorf("it panics with %v", said)
						}
					}()
					decode()
				}()
			}
		})
	}
}

// TestInto: a tensor of another format, direction or shape is not filled.
func TestInto(t *testing.T) {
	q := Quantizer{Format: MXFP8}
	fits, err := NewTensor(MXFP8, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Rowwise(tensor.New(2, 64), With{Into: fits}); err != nil {
		t.Error(err)
	}
	for _, x := range []tensor.Dense{tensor.New(3, 64), tensor.New(2, 63)} {
		if _, err := q.Rowwise(x, With{Into: fits}); err == nil {
			t.Errorf("a %d×%d matrix went into a tensor of 2×64", x.Rows, x.Cols)
		}
	}
	if _, err := q.Columnwise(tensor.New(2, 64), With{Into: fits}); err == nil {
		t.Error("a columnwise tensor went into a rowwise one")
	}
	if _, err := (Quantizer{Format: MXFP4}).Rowwise(tensor.New(2, 64), With{Into: fits}); err == nil {
		t.Error("mxfp4 went into an mxfp8 tensor")
	}
}

func TestDirection(t *testing.T) {
	for d, want := range []string{"rowwise", "columnwise", "direction 2"} {
		if got := Direction(d).String(); got != want {
			t.Errorf("direction %d is called %q", d, got)
		}
	}
}
