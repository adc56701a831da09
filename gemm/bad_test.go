package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// badEntries are the entry points of this package. Each returns its error; none may write on
// an error.
var badEntries = []struct {
	name string
	call func(c tensor.Dense, raw, a, b *quant.Tensor, o Options) error
}{
	{"Mul", func(c tensor.Dense, _, a, b *quant.Tensor, o Options) error { return Mul(c, a, b, o) }},
	{"MulBF16", func(_ tensor.Dense, raw, a, b *quant.Tensor, o Options) error { return MulBF16(raw, a, b, o) }},
	{"Packed.Mul", func(c tensor.Dense, _, a, b *quant.Tensor, o Options) error { return (&Packed{source: b}).Mul(c, a, o) }},
	{"Packed.MulBF16", func(_ tensor.Dense, raw, a, b *quant.Tensor, o Options) error {
		return (&Packed{source: b}).MulBF16(raw, a, o)
	}},
	{"Choose", func(_ tensor.Dense, _, a, b *quant.Tensor, o Options) error {
		_, err := Choose(a, b, o)
		return err
	}},
	{"Packed.Choose", func(_ tensor.Dense, _, a, b *quant.Tensor, o Options) error {
		_, err := (&Packed{source: b}).Choose(a, o)
		return err
	}},
}

// TestBadOperands checks that every entry point returns an error for damaged or mismatched
// operands, which names the operand and the problem, and writes nothing.
func TestBadOperands(t *testing.T) {
	const m, n, k, huge = 3, 80, 64, math.MaxInt/2 + 1
	r := rand.New(rand.NewPCG(21, 22))
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Row, quant.FP8Block, quant.BF16} {
		for _, name := range []string{"a", "b"} {
			for _, tc := range []struct {
				name  string
				of    bool // formats that the case applies to
				spoil func(*quant.Tensor)
				want  string
			}{
				{"zero", true, func(x *quant.Tensor) { *x = quant.Tensor{} }, name + ": block format"},
				{"no shape", true, func(x *quant.Tensor) { x.Shape = nil }, name + ": " + f.Name + " tensor: got no shape"},
				{"negative", true, func(x *quant.Tensor) { x.Shape = []int{-x.Shape[0], -x.Shape[1]} }, "got shape [-"},
				{"huge rows", true, func(x *quant.Tensor) { x.Shape[0] = huge }, "got shape [4611686018427387904 64]"},
				{"huge width", true, func(x *quant.Tensor) { x.Shape[1] = huge }, "4611686018427387904]"},
				{"dimensions that wrap around", true, func(x *quant.Tensor) { x.Shape = []int{huge, 4, k} }, "got shape [4611686018427387904 4 64]"},
				{"direction", true, func(x *quant.Tensor) { x.Direction = 7 }, "got direction 7"},
				{"no codes", true, func(x *quant.Tensor) { x.Codes = nil }, "got 0 bytes of codes, want"},
				{"few codes", true, func(x *quant.Tensor) { x.Codes = x.Codes[:len(x.Codes)-1] }, name + ": rowwise " + f.Name + " tensor of shape"},
				{"many codes", true, func(x *quant.Tensor) { x.Codes = append(x.Codes, 0) }, "bytes of codes, want"},
				{"no scales", f.Scaled(), func(x *quant.Tensor) { x.Scales, x.Scales32 = nil, nil }, "scales, want"},
				{"few scales", f.ByteScales(), func(x *quant.Tensor) { x.Scales = x.Scales[1:] }, "scales, want"},
				{"few FP32 scales", f.Scaled() && !f.ByteScales(), func(x *quant.Tensor) { x.Scales32 = x.Scales32[1:] }, "FP32 scales, want"},
				{"both scales", f.ByteScales(), func(x *quant.Tensor) { x.Scales32 = make([]float32, len(x.Scales)) }, "got FP32 scales, want none"},
				{"other scales", f.Scaled() && !f.ByteScales(), func(x *quant.Tensor) { x.Scales, x.Scales32 = make([]byte, len(x.Scales32)), nil },
					"0 FP32 scales, want"},
				{"scales of none", !f.Scaled(), func(x *quant.Tensor) { x.Scales = []byte{1} }, "got 1 scales, want 0×0"},
				{"no element", true, func(x *quant.Tensor) { x.Format.Element = nil }, "has no element format"},
				{"scale format", true, func(x *quant.Tensor) { x.Format.Scale = format.E5M2 }, "block format"},
				{"blocks", f.Scaled(), func(x *quant.Tensor) { x.Format.Block.Cols = -1 }, "negative block shape"},
			} {
				if !tc.of {
					continue
				}
				a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
				tc.spoil(map[string]*quant.Tensor{"a": a, "b": b}[name])
				checkError(t, fmt.Sprintf("%s of %s: %s", f, name, tc.name), a, b, Options{}, tc.want)
				if _, _, err := Reference(a, b); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Reference of %s with %s: got error %v, want one with %q", name, tc.name, err, tc.want)
				}
				if name == "b" {
					if _, err := Pack(b, f, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("Pack with %s: got error %v, want one with %q", tc.name, err, tc.want)
					}
				}
			}
		}
	}
	good := func(rows, width int, d quant.Direction) *quant.Tensor {
		return operand(t, r, quant.MXFP8, d, rows, width)
	}
	a, b := good(m, k, quant.Rowwise), good(n, k, quant.Rowwise)
	for _, tc := range []struct {
		name string
		a, b *quant.Tensor
		o    Options
		want string
	}{
		{"a is nil", nil, b, Options{}, "a is nil"},
		{"b is nil", a, nil, Options{}, "b is nil"},
		{"both are nil", nil, nil, Options{}, "a is nil"},
		{"depth", a, good(n, k+32, quant.Rowwise), Options{}, "a has K = 64 (rowwise mxfp8 3×64), b has K = 96 (rowwise mxfp8 80×96)"},
		{"direction of a", good(k, m, quant.Columnwise), b, Options{}, "a has the wrong direction: quantize it rowwise"},
		{"direction of b", a, good(k, n, quant.Rowwise), Options{}, "b has the wrong direction: quantize it columnwise"},
		{"threads", a, b, Options{Threads: -1}, "Threads: got -1,"},
		{"least threads", a, b, Options{Threads: math.MinInt}, "Threads: got -9223372036854775808,"},
		{"kernel", a, b, Options{Kernel: "fast"}, `unknown kernel: got "fast", want one of ` + Kernels()[0].Name + ", "},
		{"kernel that cannot", a, b, Options{Kernel: "int8-nv-reference"}, "does not support mxfp8 × mxfp8"},
	} {
		checkError(t, tc.name, tc.a, tc.b, tc.o, tc.want)
	}
}

// checkError checks that every entry point returns the error and writes nothing.
func checkError(t *testing.T, name string, a, b *quant.Tensor, o Options, want string) {
	t.Helper()
	const m, n, canary = 3, 80, 3
	c, raw := tensor.New(m, n), mustTensor(t, quant.BF16, m, n)
	for i := range c.Data {
		c.Data[i], raw.Codes[2*i] = canary, canary
	}
	for _, e := range badEntries {
		if err := e.call(c, raw, a, b, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with %s: got error %v, want one with %q", e.name, name, err, want)
		}
	}
	for i, x := range c.Data {
		if x != canary || raw.Codes[2*i] != canary || raw.Codes[2*i+1] != 0 {
			t.Fatalf("%s: element %d of c was written, want it unchanged", name, i)
		}
	}
}

// TestBadProducts checks the errors for a C that is damaged, has the wrong shape, or overlaps
// an operand.
func TestBadProducts(t *testing.T) {
	const m, n, k = 3, 80, 64
	r := rand.New(rand.NewPCG(23, 24))
	a, b := operand(t, r, quant.BF16, quant.Rowwise, m, k), operand(t, r, quant.FP8Row, quant.Rowwise, n, k)
	data := make([]float32, m*n+n)
	for _, tc := range []struct {
		name string
		c    tensor.Dense
		bias []float32
		want string
	}{
		{"zero", tensor.Dense{}, nil, "c: got 0×0, but a (rowwise bf16 3×64) times b (rowwise fp8-row 80×64) is 3×80"},
		{"no data", tensor.Dense{Rows: m, Cols: n, Stride: n}, nil, "got 0 elements, too few for a 3×80 matrix"},
		{"little data", tensor.Dense{Rows: m, Cols: n, Stride: n, Data: data[:m*n-1]}, nil, "got 239 elements, too few"},
		{"stride", tensor.Dense{Rows: m, Cols: n, Stride: n - 1, Data: data}, nil, "is less than the columns"},
		{"negative stride", tensor.Dense{Rows: m, Cols: n, Stride: -n, Data: data}, nil, "is less than the columns"},
		{"huge stride", tensor.Dense{Rows: m, Cols: n, Stride: 1 << 63 / 3, Data: data}, nil, "too few"},
		{"negative", tensor.Dense{Rows: -m, Cols: n, Stride: n, Data: data}, nil, "invalid shape -3×80"},
		{"transposed", tensor.Of(n, m, data[:m*n]), nil, "c: got 80×3"},
		{"short bias", tensor.Of(m, n, data[:m*n]), make([]float32, n-1), "bias: got 79 elements, want 80"},
		{"empty bias", tensor.Of(m, n, data[:m*n]), []float32{}, "bias: got 0 elements"},
		{"bias in c", tensor.Of(m, n, data[:m*n]), data[n : 2*n], "c shares memory with the bias: a is rowwise bf16 3×64, b is rowwise " +
			"fp8-row 80×64"},
		{"bias at the end of c", tensor.Of(m, n, data[:m*n]), data[m*n-1:][:n], "c shares memory with the bias"},
	} {
		if err := Mul(tc.c, a, b, Options{Bias: tc.bias}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want one with %q", tc.name, err, tc.want)
		}
	}
	row := operand(t, r, quant.BF16, quant.Rowwise, 1, k)
	for _, stride := range []int{n, 1<<62 + 1, 1 << 62, 1 << 61, math.MaxInt} { // c has one row; its size in bytes wraps around
		c := tensor.Dense{Rows: 1, Cols: n, Stride: stride, Data: data[:n]}
		if err := Mul(c, row, b, Options{Bias: data[2 : n+2]}); err == nil || !strings.Contains(err.Error(), "c shares memory with the bias") {
			t.Errorf("bias within a row, stride %d: got error %v", stride, err)
		}
		if err := Mul(c, row, b, Options{Bias: data[n : 2*n]}); err != nil {
			t.Errorf("bias after a row, stride %d: %v", stride, err)
		}
	}
	shared := make([]float32, m*n)
	copy(shared[n+7:], b.Scales32)
	scales := *b
	scales.Scales32 = shared[n+7:][:n]
	if err := Mul(tensor.Of(m, n, shared), a, &scales, Options{}); err == nil || !strings.Contains(err.Error(),
		"c shares memory with b's scales") {
		t.Errorf("scales within c: got error %v", err)
	}
	beside := tensor.New(m, 2*n) // its columns past those of c hold the scales
	copy(beside.Row(1)[n:], b.Scales32)
	scales.Scales32 = beside.Row(1)[n:]
	if err := Mul(beside.View(0, m, 0, n), a, &scales, Options{Bias: beside.Row(0)[n:]}); err != nil {
		t.Errorf("scales between the rows of c: %v", err)
	}
	square := operand(t, r, quant.BF16, quant.Rowwise, k, k)
	for name, err := range map[string]error{
		"c shares memory with a's codes":                  MulBF16(square, square, operand(t, r, quant.BF16, quant.Rowwise, k, k), Options{}),
		"c shares memory with b's codes":                  MulBF16(square, operand(t, r, quant.BF16, quant.Rowwise, k, k), square, Options{}),
		"c is nil":                                        MulBF16(nil, a, b, Options{}),
		"c: block format":                                 MulBF16(&quant.Tensor{}, a, b, Options{}),
		"got a columnwise bf16 tensor, want rowwise bf16": MulBF16(operand(t, r, quant.BF16, quant.Columnwise, n, m), a, b, Options{}),
		"got a rowwise f32 tensor":                        MulBF16(mustTensor(t, quant.F32, m, n), a, b, Options{}),
		"c: got 80×3":                                     MulBF16(mustTensor(t, quant.BF16, n, m), a, b, Options{}),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got error %v, want one with %q", err, name)
		}
	}
}

// TestBadPacked checks the errors for a nil Packed, an invalid format, and a tensor that
// changed after Pack.
func TestBadPacked(t *testing.T) {
	const m, n, k = 40, 80, 64
	r := rand.New(rand.NewPCG(25, 26))
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, m, k), operand(t, r, quant.MXFP8, quant.Rowwise, n, k)
	c, raw := tensor.New(m, n), mustTensor(t, quant.BF16, m, n)
	for _, p := range []*Packed{nil, {}} {
		_, chosen := p.Choose(a, Options{})
		for name, err := range map[string]error{"Mul": p.Mul(c, a, Options{}), "MulBF16": p.MulBF16(raw, a, Options{}), "Choose": chosen} {
			if err == nil || !strings.Contains(err.Error(), "b is nil") {
				t.Errorf("%s of a nil Packed: got error %v", name, err)
			}
		}
	}
	for _, tc := range []struct {
		b    *quant.Tensor
		a    quant.Format
		o    Options
		want string
	}{
		{nil, quant.MXFP8, Options{}, "b is nil"},
		{b, quant.Format{}, Options{}, "gemm: a: block format"},
		{b, quant.MXFP8, Options{Threads: -2}, "got -2"},
		{b, quant.MXFP8, Options{Kernel: "fast"}, `unknown kernel: got "fast"`},
	} {
		if _, err := Pack(tc.b, tc.a, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Pack: got error %v, want one with %q", err, tc.want)
		}
	}
	packed, err := Pack(b, quant.MXFP8, Options{})
	if err != nil {
		t.Fatal(err)
	}
	*b = *operand(t, r, quant.MXFP8, quant.Rowwise, 3*n, k)
	got, want := tensor.New(m, 3*n), tensor.New(m, 3*n)
	if err := packed.Mul(got, a, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Mul(want, a, b, Options{}); err != nil || !sameBits(got.Data, want.Data) {
		t.Errorf("a tensor with more rows than were packed: got error %v", err)
	}
}

// TestBadGlobal checks that every kernel that supports the operands returns the same error for
// a NaN global scale.
func TestBadGlobal(t *testing.T) {
	const n, k = 20, 64
	r := rand.New(rand.NewPCG(27, 28))
	for _, m := range []int{3, 40} {
		for _, f := range []quant.Format{quant.BF16, quant.NVFP4, quant.MXINT8} {
			a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, quant.NVFP4, quant.Rowwise, n, k)
			taken := 0
			for _, kernel := range append(Kernels(), Kernel{}) {
				o := Options{Kernel: kernel.Name}
				if _, err := Choose(a, b, o); err != nil {
					continue
				}
				taken++
				nan := *b
				nan.Global = float32(math.NaN())
				c := tensor.New(m, n)
				if err := Mul(c, a, &nan, o); err == nil || !strings.Contains(err.Error(), "the global scale of b is NaN: a is rowwise "+f.Name) {
					t.Errorf("kernel=%s a=%s m=%d: got error %v", kernel.Name, f, m, err)
				}
				for i, x := range c.Data {
					if x == x {
						t.Fatalf("kernel=%s a=%s m=%d: got %[5]g at element %[4]d, want NaN", kernel.Name, f, m, i, x)
					}
				}
			}
			if taken < 3 {
				t.Errorf("a=%s m=%d: got %d kernels that support the operands", f, m, taken)
			}
		}
	}
	if got := (&NaNScale{Operand: "a"}).Error(); got != "gemm: a scale of a is NaN" {
		t.Errorf("empty NaNScale: got %q", got)
	}
}

// TestBadScaled checks the errors of ScaledMM for invalid shapes and for codes or scales that
// do not match the shape.
func TestBadScaled(t *testing.T) {
	const n, k, huge = 16, 256, math.MaxInt / 16 * 16
	r := rand.New(rand.NewPCG(29, 30))
	for _, p := range scaledPairs {
		of := func(s scaling) Scaled {
			f := scalings[s].like
			f.Element = p.elements[0]
			return scaled(operand(t, r, f, quant.Rowwise, n, k), s, false)
		}
		for _, tc := range []struct {
			name  string
			spoil func(a, b *Scaled)
			want  string
		}{
			{"zero a", func(a, _ *Scaled) { *a = Scaled{} }, "got a 0×0 and b 16×256"},
			{"zero", func(a, b *Scaled) { *a, *b = Scaled{}, Scaled{} }, ""},
			{"rows of a", func(a, _ *Scaled) { a.Rows = huge }, "9223372036854775792×256"},
			{"rows of b", func(_, b *Scaled) { b.Rows = huge }, "9223372036854775792×256"},
			{"rows that wrap around", func(a, _ *Scaled) { a.Rows = 1<<62 + n }, "4611686018427387920×256"},
			{"negative rows", func(a, _ *Scaled) { a.Rows = -n }, "got a -16×256 and b 16×256, want no negative dimension"},
			{"negative width", func(a, b *Scaled) { a.K, b.K = -k, -k }, "got a 16×-256 and b 16×-256, want no negative dimension"},
			{"width", func(a, b *Scaled) { a.K, b.K = huge, huge }, "×9223372036854775792"},
			{"width that wraps around", func(a, b *Scaled) { a.K, b.K = 1<<61, 1<<61; a.Codes, b.Codes = nil, nil; a.Rows, b.Rows = 256, 256 },
				"256×2305843009213693952"},
			{"codes", func(a, _ *Scaled) { a.Codes = a.Codes[1:] }, "codes: got "},
			{"no codes", func(_, b *Scaled) { b.Codes = nil }, "b (" + p.b.String() + " 16×256 " + p.elements[0].Name + "): codes: got 0 bytes"},
			{"no scales", func(a, _ *Scaled) { a.Scales, a.Scales32 = nil, nil }, "got 0 of 8 bits and 0 of FP32"},
			{"few scales", func(a, _ *Scaled) { a.Scales, a.Scales32 = a.Scales[:len(a.Scales)/2], a.Scales32[:len(a.Scales32)/2] },
				"a (" + p.a.String() + " 16×256): scales: got "},
			{"half of each", func(a, _ *Scaled) {
				n := len(a.Scales) + len(a.Scales32)
				a.Scales, a.Scales32 = make([]byte, (n+1)/2), make([]float32, n/2)
			}, "scales: got "},
			{"too many", func(a, _ *Scaled) { a.Scales, a.Scales32 = make([]byte, 1<<12), make([]float32, 1<<12) },
				"got 4096 of 8 bits and 4096 of FP32"},
			{"scaling", func(_, b *Scaled) { b.Block.Rows = 99 }, "b has 99×"},
			{"element", func(a, _ *Scaled) { a.Element = nil }, "elements: got"},
			{"other element", func(a, _ *Scaled) { a.Element = format.BF16 }, "elements: got"},
			{"one global scale", func(a, b *Scaled) { a.Global, b.Global = new(float32), nil }, "want both or neither"},
		} {
			a, b := of(p.a), of(p.b)
			tc.spoil(&a, &b)
			for name, err := range map[string]error{
				"ScaledMM":     ScaledMM(tensor.New(n, n), a, b, Options{}),
				"ScaledMMBF16": ScaledMMBF16(mustTensor(t, quant.BF16, n, n), a, b, Options{}),
			} {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s of %s and %s with %s: got error %v, want one with %q", name, p.a, p.b, tc.name, err, tc.want)
				}
			}
		}
	}
	const rows = 1 << 40
	a := Scaled{Rows: rows, Element: format.E4M3, Block: quant.FP8Vec128.Block}
	b := Scaled{Element: format.E4M3, Block: quant.FP8Block.Block}
	if err := ScaledMM(tensor.Dense{Rows: rows}, a, b, Options{}); err != nil {
		t.Errorf("empty rows: %v", err)
	}
	x, y := mustTensor(t, quant.BF16, 0, 0), mustTensor(t, quant.BF16, 0, 0)
	x.Shape[0] = rows
	if product, _, err := Reference(x, y); len(product) > 0 || err != nil {
		t.Errorf("Reference of empty rows: got %v, %v", product, err)
	}
}
