package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// searchQuantizers are the least-squares searches of every format, and of the
// arithmetics and rules in which candidates differ.
func searchQuantizers() []Quantizer {
	var list []Quantizer
	for _, f := range append(Formats(), Q8_0) {
		switch {
		case !f.Scaled() || f.PerTensor():
		case f.Name == Q8_0.Name:
			list = append(list, Quantizer{Format: f, Arithmetic: HalfScale, Rounding: format.HalfAway})
		case f.Scale == format.E8M0:
			list = append(list, Quantizer{Format: f}, Quantizer{Format: f, Rule: Round, NonFinite: Poison})
		default:
			for a := range HalfScale {
				list = append(list, Quantizer{Format: f, Arithmetic: a})
			}
			if f.Scale == format.F32 {
				list = append(list, Quantizer{Format: f, PowerOfTwo: true})
			}
		}
	}
	for i := range list {
		list[i].Search = LeastSquares
	}
	return append(list, Quantizer{Format: MXFP4, Search: LeastSquares, Rounding: format.HalfTowardZero, NegativeZero: DropNegativeZero})
}

func fourOverSixQuantizers() []Quantizer {
	var list []Quantizer
	for _, f := range []Format{NVFP4, NVFP4x16} {
		for _, search := range []Search{FourOverSixMAE, FourOverSixMSE} {
			list = append(list, Quantizer{Format: f, Search: search}, Quantizer{Format: f, Search: search, TopScale: FourOverSixTop})
		}
	}
	return list
}

func searchName(q Quantizer) string {
	return fmt.Sprintf("%s/search=%s/top=%g/rounding=%s", quantizerName(q), q.Search, q.TopScale, q.Rounding)
}

// searchSource is a matrix with blocks of all kinds, and ends within blocks.
func searchSource(rows, cols int, nonFinite bool) tensor.Dense {
	r := rand.New(rand.NewPCG(7, uint64(cols)))
	x := tensor.New(rows, cols)
	edgeBlocks(x.Data[:len(x.Data)/2], r, nonFinite)
	for i := len(x.Data) / 2; i < len(x.Data); i++ {
		x.Data[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(4))))
	}
	return x
}

// eachBlock calls body with the rows and columns of every block of a rowwise tensor.
func eachBlock(t *Tensor, body func(scale, r0, r1, c0, c1 int)) {
	height := t.Format.Block.Rows
	for i := range t.scaleRows() {
		for j := range t.scaleCols() {
			body(i*t.scaleCols()+j, i*height, min((i+1)*height, t.Rows()), j*t.extent(), min((j+1)*t.extent(), t.Cols()))
		}
	}
}

// TestSearchIsNeverWorse compares every block with that of the rule's scale.
func TestSearchIsNeverWorse(t *testing.T) {
	slow.Emulated(t, "TestSearchKernels compares what kernels choose with what is chosen without them")
	x := searchSource(130, 300, false)
	for _, q := range searchQuantizers() {
		plain := q
		plain.Search = NoSearch
		got, want := made(q.Rowwise(x, With{})), made(plain.Rowwise(x, With{}))
		a, b := got.Dequantize(0), want.Dequantize(0)
		better := 0
		eachBlock(got, func(_, r0, r1, c0, c1 int) {
			var e, before float64
			for r := r0; r < r1; r++ {
				for c := c0; c < c1; c++ {
					e += square(float64(a.At(r, c)) - float64(x.At(r, c)))
					before += square(float64(b.At(r, c)) - float64(x.At(r, c)))
				}
			}
			if e > before*(1+1e-12) {
				t.Errorf("%s: the block at %d, %d has error %g, and %g without a search", searchName(q), r0, c0, e, before)
			}
			if e < before {
				better++
			}
		})
		if better == 0 && q.Format.Element.Mantissa < 3 && !q.Format.Element.Integer {
			t.Errorf("%s: no block is better", searchName(q))
		}
	}
}

func square(x float64) float64 { return x * x }

func made(t *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

// TestSearchIsExhaustive tries the documented candidates of every block one by one,
// with elements encoded by the formula and one at a time.
func TestSearchIsExhaustive(t *testing.T) {
	x := searchSource(36, 96, false)
	amax := Amax(x, 1)
	for _, q := range []Quantizer{
		{Format: MXFP4}, {Format: MXFP8}, {Format: MXFP6E2M3}, {Format: MXINT8}, {Format: MXFP8x32}, {Format: MXFP4, Rule: Floor},
		{Format: NVFP4}, {Format: NVFP4x16}, {Format: NVFP4, TopScale: 256}, {Format: NVFP4, Arithmetic: DecodeFirst},
		{Format: FP8Vec128}, {Format: FP8Row}, {Format: FP8Block}, {Format: FP8Vec128, PowerOfTwo: true},
		{Format: FP8Row, Arithmetic: DecodeFirst},
	} {
		plain := q
		q.Search = LeastSquares
		got, want := made(q.Rowwise(x, With{})), made(plain.Rowwise(x, With{}))
		element := q.Format.Element
		errorUnder := func(r0, r1, c0, c1 int, scale float32) (sum float64) {
			for r := r0; r < r1; r++ {
				for c := c0; c < c1; c++ {
					v := x.At(r, c)
					scaled := float32(v * min(1/scale, math.MaxFloat32))
					if q.Arithmetic == DecodeFirst {
						scaled = v / scale
					}
					sum += square(float64(float32(scale*element.Decode(element.Encode(scaled)))) - float64(v))
				}
			}
			return sum
		}
		eachBlock(got, func(i, r0, r1, c0, c1 int) {
			var block float32
			for r := r0; r < r1; r++ {
				for c := c0; c < c1; c++ {
					block = max(block, float32(math.Abs(float64(x.At(r, c)))))
				}
			}
			if block == 0 {
				return
			}
			var near []float32 // candidates
			switch q.Format.Scale {
			case format.E8M0:
				for c := max(int(want.Scales[i])-1, 0); c <= min(int(want.Scales[i])+1, 254); c++ {
					near = append(near, float32(math.Ldexp(1, c-127)))
				}
			case format.E4M3:
				global := amax / (6 * q.top())
				if q.Arithmetic == EncodeFirst {
					global = 1 / (6 * q.top() / amax)
				}
				if global != got.Global {
					t.Fatalf("%s: the global scale is %g, want %g", searchName(q), got.Global, global)
				}
				for c := max(int(want.Scales[i])-2, 1); c <= min(int(want.Scales[i])+6, 0x7e); c++ {
					near = append(near, float32(format.E4M3.Decode(uint32(c))*global))
				}
			default:
				for _, f := range []float32{1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875} {
					near = append(near, float32(block*f)/element.Max())
					if q.Arithmetic == EncodeFirst {
						near[len(near)-1] = 1 / (element.Max() / float32(block*f))
					}
				}
				if q.PowerOfTwo {
					near = []float32{want.Scales32[i], want.Scales32[i] / 2, want.Scales32[i] * 2}
				}
			}
			scale := got.Scale(r0, c0)
			if before := want.Scale(r0, c0); scale != before && !slices.Contains(near, scale) {
				t.Errorf("%s: block %d has scale %g, which is none of %v", searchName(q), i, scale, near)
			}
			e := errorUnder(r0, r1, c0, c1, scale)
			for _, s := range near {
				if other := errorUnder(r0, r1, c0, c1, s); other < e*(1-1e-12) {
					t.Errorf("%s: block %d has scale %g of error %g, and %g has %g", searchName(q), i, scale, e, s, other)
				}
			}
			if before := errorUnder(r0, r1, c0, c1, want.Scale(r0, c0)); before == e && scale != want.Scale(r0, c0) {
				t.Errorf("%s: block %d has scale %g, which is no better than the rule's %g", searchName(q), i, scale, want.Scale(r0, c0))
			}
		})
	}
}

// TestSearchKernels compares kernels with the Go twins, in both directions, from float32 and
// BF16, with NaN and Inf.
func TestSearchKernels(t *testing.T) {
	x := searchSource(66, 176, true)
	half := tensor.BF16{Rows: x.Rows, Cols: x.Cols, Stride: x.Cols, Data: make([]byte, 2*len(x.Data))}
	if err := tensor.ToBytes(half.Data, x.Data, format.BF16); err != nil {
		t.Fatal(err)
	}
	for i, q := range append(searchQuantizers(), fourOverSixQuantizers()...) {
		if i%slow.Stride(1, 3) > 0 {
			continue
		}
		forms := []func() (*Tensor, error){
			func() (*Tensor, error) { return q.Rowwise(x, With{}) },
			func() (*Tensor, error) { return q.RowwiseBF16(half, With{}) },
			func() (*Tensor, error) { return q.Columnwise(x, With{}) },
		}
		var want []*Tensor
		plainly(t, func() {
			for _, f := range forms {
				want = append(want, made(f()))
			}
		})
		eachKernel(t, func(t *testing.T) {
			for i, f := range forms {
				got := made(f())
				if !bytes.Equal(got.ScaleBytes(), want[i].ScaleBytes()) || !bytes.Equal(got.Codes, want[i].Codes) {
					t.Errorf("%s: form %d differs from the plain one", searchName(q), i)
				}
			}
		})
	}
}

// TestSearchOfTilesThreads quantizes a matrix in tiles, and on one thread.
func TestSearchOfTilesThreads(t *testing.T) {
	x := searchSource(64, 256, false)
	amax := Amax(x, 1)
	for _, q := range append(searchQuantizers(), fourOverSixQuantizers()...) {
		want := made(q.Rowwise(x, With{}))
		rows := 32
		if q.Format.Block.Rows > rows {
			rows = 64
		}
		var parts []*Tensor
		for r := 0; r < x.Rows; r += rows {
			parts = append(parts, made(q.Rowwise(x.View(r, r+rows, 0, x.Cols), With{Amax: &amax, FirstRow: r, Threads: 1})))
		}
		got := made(Concat(parts...))
		if !bytes.Equal(got.ScaleBytes(), want.ScaleBytes()) || !bytes.Equal(got.Codes, want.Codes) {
			t.Errorf("%s: tiles differ from the whole", searchName(q))
		}
	}
}

// TestFourOverSix has blocks worked out by hand, under a global scale of 1: the
// second row's first element is what makes it that. Steps of elements under scale 1
// are 0 ½ 1 1½ 2 3 4 6, under 1½ they are 0 ¾ 1½ 2¼ 3 4½ 6 9.
func TestFourOverSix(t *testing.T) {
	const one, oneAndHalf = 0x38, 0x3c
	for _, tc := range []struct {
		name     string
		x        []float32
		mae, mse byte   // scales
		codes    []byte // of mse
	}{
		{"4½ is a step under 1½ alone", []float32{6, 4.5}, oneAndHalf, oneAndHalf, []byte{6, 5}},
		{"4 is one under 1 alone", []float32{6, -4}, one, one, []byte{7, 0x8 | 6}},
		{"both are exact", []float32{6, 3, -1.5}, one, one, []byte{7, 5, 0x8 | 3}},
		{"errors 1 0 0 0, and ½ ¼ ¼ ¼", []float32{6, 5, 2, 2, 1}, one, oneAndHalf, []byte{6, 5, 3, 3, 1}},
		{"zeros", nil, 0, 0, nil},
	} {
		for _, top := range []float32{0, FourOverSixTop} {
			x := tensor.New(2, 16)
			copy(x.Data, tc.x)
			x.Data[16] = 6 * 448
			if top > 0 {
				x.Data[16] = 6 * top
			}
			for _, search := range []Search{FourOverSixMAE, FourOverSixMSE} {
				q := made(Quantizer{Format: NVFP4, Search: search, TopScale: top}.Rowwise(x, With{}))
				want := tc.mae
				if search == FourOverSixMSE {
					want = tc.mse
					codes := make([]byte, 16)
					format.E2M1.Split(codes, q.Codes[:8])
					if !bytes.Equal(codes[:len(tc.codes)], tc.codes) {
						t.Errorf("%s: codes are %x, want %x", tc.name, codes, tc.codes)
					}
				}
				if q.Global != 1 || q.Scales[0] != want {
					t.Errorf("%s: %s with top %g has scale %#x under %g, want %#x under 1", tc.name, search, top, q.Scales[0], q.Global, want)
				}
			}
		}
	}
}

// TestFourOverSixSquare has the errors of a block of 16×16 in float32: the order of
// their sum decides.
func TestFourOverSixSquare(t *testing.T) {
	x := tensor.New(32, 16)
	x.Data[16*16] = 6 * 448
	for r := range 16 {
		x.Set(r, 0, 6)
		x.Set(r, 1, 4.5)
	}
	q := made(Quantizer{Format: NVFP4x16, Search: FourOverSixMAE}.Rowwise(x, With{}))
	if q.Scales[0] != 0x3c {
		t.Errorf("the scale is %#x, want that of 1½", q.Scales[0])
	}
	o := &output{q: &Quantizer{Format: NVFP4x16, Search: FourOverSixMAE}}
	errors := make([]float64, 16)
	errors[0], errors[1], errors[9] = 1<<24, 1, 1 // 9 joins 1 before they meet 0
	if got := o.blockError(errors, 16, 1); got != 1<<24+2 {
		t.Errorf("the tree gives %g, want %d", got, 1<<24+2)
	}
}

func TestSearchRefusals(t *testing.T) {
	for _, q := range []Quantizer{
		{Format: FP8Tensor, Search: LeastSquares},
		{Format: BF16, Search: LeastSquares},
		{Format: MXFP4, Search: LeastSquares, Rounding: format.Stochastic},
		{Format: MXFP4, Search: FourOverSixMAE},
		{Format: NVFP4, Search: FourOverSixMAE, Arithmetic: DecodeFirst},
		{Format: NVFP4, Search: FourOverSixMSE, Hadamard: true},
		{Format: NVFP4, Search: 9},
		{Format: NVFP4, TopScale: 449},
		{Format: NVFP4, TopScale: float32(math.NaN())},
		{Format: NVFP4, TopScale: 256, Arithmetic: BlockOnly},
		{Format: MXFP4, TopScale: 256},
	} {
		if err := q.Validate(); err == nil {
			t.Errorf("%s: it is valid", searchName(Quantizer{Format: q.Format}))
		}
	}
	for _, s := range Searches() {
		var got Search
		if err := got.UnmarshalText([]byte(s.String())); got != s || err != nil {
			t.Errorf("%s is read as %d, %v", s, got, err)
		}
	}
}

// TestEncodeScale compares encodeScale with the codec: at every code, at every midpoint, beside both, and between.
func TestEncodeScale(t *testing.T) {
	check := func(bits uint32) {
		if x := math.Float32frombits(bits); uint32(encodeScale(x)) != scaleFormat.Encode(x) {
			t.Fatalf("%g: got code %d, want %d", x, encodeScale(x), scaleFormat.Encode(x))
		}
	}
	for code := range scaleFormat.MaxCode() {
		a, b := math.Float32bits(scaleFormat.Decode(code)), math.Float32bits(scaleFormat.Decode(code+1))
		for _, at := range []uint32{a, a + (b-a)/2, b} {
			for d := range uint32(5) {
				check(max(at+d, 2) - 2)
			}
		}
	}
	for bits := uint32(0); bits <= exponentMask; bits += 9973 {
		check(bits)
	}
}
