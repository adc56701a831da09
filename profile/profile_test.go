package profile

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

var (
	nan     = float32(math.NaN())
	inf     = float32(math.Inf(1))
	negZero = float32(math.Copysign(0, -1))
	belowM6 = float32(0x1p-6 * (1 - 0x1p-10))
)

// ints returns a block format of integers, which has no variable.
func ints(name string) quant.Format {
	f, err := quant.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

// A sample is a row of elements, in blocks of the format's width, the last padded with zeros,
// and the result of each profile.
type sample struct {
	name   string
	format quant.Format
	blocks [][]float32
	amax   float32 // of the tensor that the row is from; 0: of the row
	want   []outcome
}

type outcome struct {
	profiles string // that agree
	scales   string // their bytes in hex; an FP32 scale as its bits, most significant first
	codes    string // one byte each, blocks separated by a space, trailing zeros of a block left out
}

// The expected results were computed by hand from each library's published algorithm.
var samples = []sample{
	{"max-at-1.75", quant.MXFP4, [][]float32{{7, 3.5}}, 0, []outcome{
		{"te", "80", "0604"},                       // 7 > 6: the next scale; 3.5 is a tie, to 4
		{"ocp torchao", "7f", "0706"},              // floor: 7 saturates
		{"microxcaling", "7f", "0706"},             //
		{"ggml", "7f", "0705"},                     // 3.5 is a tie, toward 3
		{"compressed-tensors quark", "80", "0604"}, // 1.75 rounds up to 2
		{"mlx", "80", "0503"},                      // 3.5 and 1.75 are ties, toward zero
		{"mlx-0.31", "7f", "0705"},                 // 7/6 is nearest to 1
	}},
	{"max-at-1.05", quant.MXFP4, [][]float32{{4.2, 1}}, 0, []outcome{
		{"te ocp torchao microxcaling ggml compressed-tensors quark mlx", "7f", "0602"},
		{"mlx-0.31", "7e", "0704"}, // 4.2/6 is nearest to a half, which saturates
	}},
	{"max-at-1.90625", quant.MXFP6E2M3, [][]float32{{7.625}}, 0, []outcome{
		{"te", "80", "17"},        // 7.625 > 7.5; 3.75
		{"ocp quark", "7f", "1f"}, // it does not round up to 2 at three bits
	}},
	{"max-at-1.96875", quant.MXFP6E2M3, [][]float32{{7.875}}, 0, []outcome{
		{"te quark", "80", "18"},
		{"ocp", "7f", "1f"},
	}},
	{"max-at-1.625", quant.MXFP4, [][]float32{{6.5}}, 0, []outcome{
		{"te", "80", "05"}, // 3.25
		{"ocp torchao microxcaling ggml compressed-tensors", "7f", "07"},
	}},
	{"ties-and-zeros", quant.MXFP4, [][]float32{{6, 2.5, 0.25, -0.25, 5, negZero, -0.1, 0.75}}, 0, []outcome{
		{"te ocp torchao", "7f", "0704000806080802"},
		{"microxcaling", "7f", "0705010907080802"},       // away from zero
		{"ggml mlx mlx-0.31", "7f", "0704000006000001"},  // toward zero, no -0
		{"quark", "7f", "0704000006000002"},              // no -0
		{"compressed-tensors", "7f", "0704000806000802"}, // -0 itself is 0, -0.1 is -0
	}},
	{"448", quant.MXFP8, [][]float32{{448}}, 0, []outcome{
		{"te ocp torchao microxcaling modelopt", "7f", "7e"},
		{"compressed-tensors", "80", "76"}, // FP4's width: 1.75 rounds up to 2
	}},
	{"440", quant.MXFP8, [][]float32{{440}}, 0, []outcome{
		{"te ocp torchao microxcaling modelopt compressed-tensors", "7f", "7e"},
	}},
	{"480", quant.MXFP8, [][]float32{{480}}, 0, []outcome{
		{"te modelopt compressed-tensors", "80", "77"},
		{"ocp torchao microxcaling", "7f", "7e"},
	}},
	// The elements of microxcaling's E4M3 test, in a block whose scale is 1.
	{"microxcaling-test", quant.MXFP8, [][]float32{{485, 475, 400, -485, -475, -450, 0x1p-6, -0x1p-6}}, 0, []outcome{
		{"microxcaling", "7f", "7e7e7dfefefe0888"}, // 400 is a tie, away from 384
		{"ocp torchao", "7f", "7e7e7cfefefe0888"},
	}},
	{"signed-zeros", quant.MXFP8, [][]float32{{1, negZero, -0x1p-30}}, 0, []outcome{
		{"te ocp torchao microxcaling modelopt mlx", "77", "788080"},
		{"compressed-tensors", "77", "780080"}, // it adds a zero point of 0
	}},
	{"signed-zeros-fp8", quant.FP8Row, [][]float32{{448, negZero, -0x1p-30}}, 0, []outcome{
		{"te modelopt", "3f800000", "7e8080"},
		{"compressed-tensors", "3f800000", "7e0080"},
	}},
	{"signed-zeros-fp6", quant.MXFP6E2M3, [][]float32{{1, negZero, -0x1p-10}}, 0, []outcome{
		{"te ocp torchao microxcaling", "7d", "182020"},
		{"quark", "7d", "180000"},
	}},
	// Under this scale, -2^-133 is zero before it is rounded.
	{"underflow", quant.NVFP4, [][]float32{{2688 * 0x1p20, -0x1p-133}}, 0, []outcome{
		{"te torchao", "7e", "0708"},
		{"compressed-tensors", "7e", "07"},
	}},
	// Without a global scale: 7.5 smallest scales, and a tie between 1 and 1.125.
	{"scale-ties", quant.NVFP4, [][]float32{{6 * 7.5 / 512, -0.01}, {6 * 1.0625, 0.25}}, 0, []outcome{
		{"ggml", "0739", "0709 07"},
		{"mlx mlx-0.31", "0838", "0709 07"},
	}},
	{"zero-block-fp4", quant.MXFP4, [][]float32{{0}, {6}}, 0, []outcome{
		{"te ocp quark compressed-tensors", "007f", " 07"},
		{"mlx mlx-0.31", "7f7f", " 07"},
	}},
	// Over 1/16 = 7.5/120 they are 7.5, 2.5, −8, −0.5 and 0.25: ties to even, 8 saturates and −8 does not.
	{"int4", ints("int4-g32"), [][]float32{{0x1p-4 * 7.5, 0x1p-4 * 2.5, -0x1p-4 * 7.5, -0x1p-5, 0x1p-6}}, 0, []outcome{
		{"compressed-tensors", "3d800000", "070208"},
	}},
	// BF16's 3.5/127.5 is 0x3ce1, and 3.5 over it 127.4, in BF16 127.5, which is a tie.
	{"int8-rows", ints("int8-row"), [][]float32{{3.5, -3.5, 0x1p-9}}, 0, []outcome{
		{"compressed-tensors", "3ce10000", "7f80"},
	}},
	{"int8", quant.MXINT8, [][]float32{{1.99, -1.5, 0.0078125, -0.0078125}}, 0, []outcome{
		{"te", "80", "40d00000"},           // 1.99 > 127/64; 0.25 steps are 0
		{"ocp", "7f", "7fa00000"},          // half a step is a tie, to 0
		{"microxcaling", "7f", "7fa001ff"}, // away from it
	}},
	// 2^-120 is 128 times the smallest scale.
	{"smallest-scale", quant.MXFP8, [][]float32{{0x1p-120, -0x1p-121}}, 0, []outcome{
		{"te ocp microxcaling modelopt", "00", "70e8"},
		{"torchao", "00", "68e0"},       // over 2^-126
		{"torchao-rceil", "00", "0080"}, // over 1
	}},
	{"inf", quant.MXFP8, [][]float32{{-inf, 1}, {1}}, 0, []outcome{
		{"te", "fe77", "fe 78"},
		{"torchao-rceil", "fe77", "fe 78"},
		{"torchao", "f777", "fe 78"}, // 2^128 under the floor rule
		{"ocp microxcaling", "ff77", strings.Repeat("7f", 32) + " 78"},
	}},
	{"nan", quant.MXFP4, [][]float32{{nan, 1}, {1}}, 0, []outcome{
		{"te", "7d7d", "0706 06"},
		{"ocp microxcaling", "ff7d", strings.Repeat("07", 32) + " 06"},
		{"torchao", "ff7d", "03 06"}, // the bits of NaN through the finite path; others over Inf
		{"torchao-rceil", "ff7d", strings.Repeat("03", 32) + " 06"},
		{"ggml", "7d7d", "0006 06"}, // no code is nearer than the first
	}},
	{"nan-e2m3", quant.MXFP6E2M3, [][]float32{{nan}}, 0, []outcome{
		{"te", "00", "1f"},
		{"torchao", "ff", "0c"},
		{"torchao-rceil", "ff", strings.Repeat("0c", 32)},
	}},
	{"nan-e3m2", quant.MXFP6E3M2, [][]float32{{nan}}, 0, []outcome{
		{"te", "00", "1f"},
		{"torchao", "ff", "0e"},
		{"torchao-rceil", "ff", strings.Repeat("0e", 32)},
	}},
	{"max-f32", quant.MXFP8, [][]float32{{math.MaxFloat32}}, 0, []outcome{
		{"te modelopt", "f7", "78"},
		{"ocp torchao microxcaling", "f6", "7e"},
	}},
	{"zero-block", quant.NVFP4, [][]float32{{2688}, {0, negZero, 0}}, 0, []outcome{
		{"te", "7e00", "07 0008"},
		{"torchao", "7e08", "07 0008"},       // never below 2^-6
		{"modelopt", "7e38", "07"},           // 1
		{"compressed-tensors", "7e20", "07"}, // 1/8
		{"ggml", "7e00", "07"},
	}},
	{"tiny-block", quant.NVFP4, [][]float32{{2688}, {6 * 0x1p-12, -0x1p-30}}, 0, []outcome{
		{"te", "7e00", "07 070f"},       // divided by next to nothing, decoded as zero
		{"torchao", "7e08", "07 0008"},  // 6/64
		{"modelopt", "7e01", "07 0208"}, // never below 2^-9: 6/8, a tie
		{"compressed-tensors", "7e20", "07 0008"},
		{"ggml", "7e00", "07"},
	}},
	{"all-zero", quant.NVFP4, [][]float32{{0}}, 0, []outcome{
		{"te ggml", "00", ""},
		{"torchao", "08", ""},
		{"modelopt", "38", ""},
		{"compressed-tensors", "20", ""},
	}},
	// E is 2688/5 = 537.6, in BF16 536: 3/6 of both has the scale 256. The global
	// scales differ (TestGlobalScales).
	{"global-scale", quant.NVFP4, [][]float32{{5}, {3, 1.252}}, 0, []outcome{
		{"te torchao modelopt", "7e78", "07 0705"},
		{"compressed-tensors", "7e78", "07 0705"},
		{"ggml", "3530", "07 0705"}, // 5/6 is 0.8125, 3/6 is 0.5
	}},
	{"given-inf", quant.NVFP4, [][]float32{{-inf, 2688, 1}}, 2688, []outcome{
		{"te torchao", "7e", "0f07"},
	}},
	{"given-nan", quant.NVFP4, [][]float32{{nan, 2688, 1}, {2688}}, 2688, []outcome{
		{"te", "7e7e", "0707 07"},
		{"torchao", "7f7e", strings.Repeat("03", 16) + " 07"},
	}},
	// ggml's own E4M3 of amax/6: 1.0625 is a tie, up; 248 and more are 448; half
	// the smallest is the smallest; and below 2^-6 nothing is above 7/512.
	{"ggml-scales", quant.NVFP4, [][]float32{{6.375}, {6 * 247}, {6 * 248}, {6 * 300}, {6 * 0x1p-10}, {6 * 0x0.fp-10}, {6 * belowM6},
		{6 * 0x1p-6}}, 0, []outcome{
		{"ggml", "39777e7e01000708", "07 07 05 06 05  07 07"},
	}},
	{"ggml-nan", quant.NVFP4, [][]float32{{nan, 6, -6}}, 0, []outcome{
		{"ggml", "38", "00070f"},
	}},
	// The last bit of the decode scale: 1/(448/11) and 11/448.
	{"fp32-scale", quant.FP8Row, [][]float32{{11}}, 0, []outcome{
		{"te torchao", "3cc92493", "7e"},
		{"modelopt", "3cc92492", "7e"},
		{"compressed-tensors", "3cc90000", "7e"},
	}},
	// 1.015625 is 151.67 steps of 3/448. Divided in BF16 it is 151.96, which rounds to 152 in
	// BF16: a tie of 144 and 160 that float32 does not have.
	{"bf16-quotient", quant.FP8Row, [][]float32{{3, 1.015625}}, 0, []outcome{
		{"te torchao modelopt", "3bdb6db7", "7e71"},
		{"compressed-tensors", "3bdb0000", "7e72"},
	}},
	{"fp8-zero", quant.FP8Vec128, [][]float32{{0, negZero}}, 0, []outcome{
		{"te", "3f800000", "0080"},
		{"torchao", "2720d7c5", "0080"}, // 1e-12/448
	}},
	{"fp8-inf", quant.FP8Row, [][]float32{{inf, -1}}, 0, []outcome{
		{"te", "3f800000", "7eb8"},
		{"torchao", "7f800000", "7f80"}, // encoded with 448/Inf = 0
		{"modelopt", "3f800000", "7eb8"},
		{"compressed-tensors", "3c000000", "7ef0"},
	}},
	// Near the top of float32 ggml's 127/amax is a normal number: elements are integers.
	{"ggml-top", quant.Q8_0, [][]float32{{0x1.ep127, math.Float32frombits(0xfef3c78e)}}, 0, []outcome{
		{"ggml", "7f800000", "7fc0"},
	}},
	// amax/127 is less than half the smallest float32.
	{"ggml-bottom", quant.Q8_0, [][]float32{{0x1p-149}}, 0, []outcome{
		{"ggml", "00000000", ""},
	}},
	{"fp8-nan", quant.FP8Row, [][]float32{{nan, 448}}, 0, []outcome{
		{"te", "3f800000", "7f7e"},
		{"torchao", "7fc00000", "7f7f"},
	}},
}

func TestSamples(t *testing.T) {
	for _, s := range samples {
		for _, o := range s.want {
			for _, name := range strings.Fields(o.profiles) {
				t.Run(fmt.Sprintf("%s/format=%s/profile=%s", s.name, s.format, name), func(t *testing.T) {
					checkSample(t, s, name, o)
				})
			}
		}
	}
}

func checkSample(t *testing.T, s sample, name string, want outcome) {
	p, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Quantizer(s.format)
	if err != nil {
		t.Fatal(err)
	}
	width := s.format.Block.Cols
	if width == 0 {
		width = len(s.blocks[0])
	}
	x := tensor.New(1, width*len(s.blocks))
	for i, b := range s.blocks {
		copy(x.Data[i*width:], b)
	}
	with := quant.With{}
	if s.amax > 0 {
		with.Amax = &s.amax
	}
	got, err := q.Rowwise(x, with)
	if err != nil {
		t.Fatal(err)
	}
	scales := hex.EncodeToString(got.Scales)
	for _, v := range got.Scales32 {
		scales += fmt.Sprintf("%08x", math.Float32bits(v))
	}
	if scales != want.scales {
		t.Errorf("scales are %s, want %s", scales, want.scales)
	}
	codes := make([]byte, x.Cols)
	s.format.Element.Split(codes, got.Codes)
	var blocks []string
	for i := range s.blocks {
		b := codes[i*width : (i+1)*width]
		for len(b) > 0 && b[len(b)-1] == 0 {
			b = b[:len(b)-1]
		}
		blocks = append(blocks, hex.EncodeToString(b))
	}
	if got := strings.Join(blocks, " "); strings.TrimRight(got, " ") != trimCodes(want.codes) {
		t.Errorf("codes are %s, want %s", got, want.codes)
	}
}

// trimCodes omits trailing zeros, as the samples do.
func trimCodes(s string) string {
	blocks := strings.Split(s, " ")
	for i, b := range blocks {
		for strings.HasSuffix(b, "00") {
			b = strings.TrimSuffix(b, "00")
		}
		blocks[i] = b
	}
	return strings.TrimRight(strings.Join(blocks, " "), " ")
}

// TestModelOptTyped: PyTorch divides a BF16 tensor by a scalar in BF16, so the quotient under
// ModelOpt's scale of the whole tensor rounds twice.
func TestModelOptTyped(t *testing.T) {
	p, err := Lookup("modelopt")
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Quantizer(quant.FP8Tensor)
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte{0x35, 0x40, 0x08, 0x3c} // 2.828125 and 0x3c080000
	got, err := q.RowwiseBF16(tensor.OfBF16(1, 2, raw), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Codes[1] != 58 {
		t.Errorf("from BF16 the code is %d, want 58", got.Codes[1])
	}
	got, err = q.Rowwise(tensor.Of(1, 2, []float32{2.828125, math.Float32frombits(0x3c080000)}), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Codes[1] != 59 {
		t.Errorf("from F32 the code is %d, want 59", got.Codes[1])
	}
}

// TestGlobalScales checks NVFP4's global decode scale of each profile.
func TestGlobalScales(t *testing.T) {
	for _, tc := range []struct {
		amax float32
		want map[string]uint32
	}{
		{5, map[string]uint32{
			"te":                 0x3af3cf3e, // 1/537.6
			"torchao":            0x3af3cf3d, // 5/2688
			"modelopt":           0x3af3cf3d,
			"compressed-tensors": 0x3af2b9d6, // 1/540: bf16(1/5)·2688 is 538.1
			"ggml":               0x3f800000,
		}},
		{1.0390625, map[string]uint32{"compressed-tensors": 0x39cb8728}}, // 1/2576, not 1/2592
		{0, map[string]uint32{"te": 0x3f800000, "torchao": 0x3f800000, "modelopt": 0x3f800000, "compressed-tensors": 0x3f800000,
			"ggml": 0x3f800000}},
		{inf, map[string]uint32{"te": 0x3f800000, "compressed-tensors": 0x3f800000, "ggml": 0x3f800000}},
	} {
		for name, want := range tc.want {
			p, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			q, err := p.Quantizer(quant.NVFP4)
			if err != nil {
				t.Fatal(err)
			}
			r, err := q.Rowwise(tensor.Of(1, 1, []float32{tc.amax}), quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			if got := math.Float32bits(r.Global); got != want {
				t.Errorf("%s: global scale of amax %g is %#08x, want %#08x", name, tc.amax, got, want)
			}
		}
	}
}

// TestDefined: which formats each profile defines, and the error for others.
func TestDefined(t *testing.T) {
	mx := "mxfp8 mxfp8-e5m2 mxfp6-e3m2 mxfp6-e2m3 mxfp4"
	fp8 := "fp8-tensor fp8-row fp8-vec128 fp8-block128"
	defined := map[string]string{
		"te":                 mx + " mxint8 nvfp4 mxfp8-32x32 nvfp4-16x16 " + fp8,
		"ocp":                mx + " mxint8",
		"torchao":            mx + " nvfp4 mxfp8-32x32 " + fp8,
		"microxcaling":       mx + " mxint8",
		"ggml":               "mxfp4 nvfp4",
		"modelopt":           "mxfp8 nvfp4 fp8-tensor fp8-row fp8-block128",
		"compressed-tensors": "mxfp8 mxfp4 nvfp4 fp8-tensor fp8-row fp8-block128 int4-g32 int4-g64 int4-g128 int8-g128 int8-row",
		"quark":              "mxfp6-e3m2 mxfp6-e2m3 mxfp4",
		"mlx":                "mxfp8 mxfp4 nvfp4",
		"deepseek":           "fp8-block128",
		"torchao-rceil":      mx + " mxfp8-32x32",
		"mlx-0.31":           "mxfp8 mxfp4 nvfp4",
	}
	if n := len(All()) + len(variants); n != len(defined) {
		t.Errorf("%d profiles, want %d", n, len(defined))
	}
	for _, p := range slices.Concat(All(), variants) {
		has := strings.Fields(defined[p.Name])
		for _, f := range quant.Formats() {
			q, err := p.Quantizer(f)
			if !f.Scaled() {
				if err != nil || q.Format.Name != f.Name || q.Rounding != format.NearestEven {
					t.Errorf("%s: %s is %v (%v), want a plain cast", p, f, q, err)
				}
				continue
			}
			if slices.Contains(has, f.Name) {
				if err != nil {
					t.Error(err)
				} else if q.Format.Name != f.Name {
					t.Errorf("%s: the quantizer of %s is of %s", p, f, q.Format)
				} else if err := q.Validate(); err != nil {
					t.Errorf("%s: %v", p, err)
				}
				continue
			}
			var others []string
			for _, other := range All() {
				if slices.Contains(strings.Fields(defined[other.Name]), f.Name) {
					others = append(others, other.Name)
				}
			}
			want := fmt.Sprintf("profile %s does not define %s: use one of %s", p, f, strings.Join(others, ", "))
			if err == nil || err.Error() != want {
				t.Errorf("says %v, want %s", err, want)
			}
		}
	}
}

// TestDefault: the quantizers of Transformer Engine's profile have no field set.
func TestDefault(t *testing.T) {
	if Default().Name != "te" || All()[0].Name != "te" {
		t.Errorf("the default is %s", Default())
	}
	for _, f := range quant.Formats() {
		if For(f).Name != Default().Name {
			if f.Scale != format.BF16 {
				t.Errorf("the default of %s is %s", f, For(f))
			}
			continue
		}
		q, err := Default().Quantizer(f)
		if err != nil {
			t.Fatal(err)
		}
		x := tensor.Of(1, 4, []float32{1, -7, nan, negZero})
		got, err := q.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Codes) != string(want.Codes) || string(got.ScaleBytes()) != string(want.ScaleBytes()) {
			t.Errorf("%s: differs from the zero quantizer", f)
		}
	}
}

// TestQuantizerIsACopy: a change to a returned quantizer does not affect the profile.
func TestQuantizerIsACopy(t *testing.T) {
	p, err := Lookup("ocp")
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Quantizer(quant.MXFP8)
	if err != nil {
		t.Fatal(err)
	}
	q.Rule = quant.Ceil
	if again, err := p.Quantizer(quant.MXFP4); err != nil || again.Rule != quant.Floor {
		t.Errorf("the rule of ocp is now %s (%v)", again.Rule, err)
	}
	All()[0].Name = "changed"
	if Default().Name != "te" {
		t.Error("All shares its table")
	}
}

func TestLookup(t *testing.T) {
	for _, p := range slices.Concat(profiles, variants) {
		for _, name := range []string{p.Name, strings.ToUpper(p.Name)} {
			if got, err := Lookup(name); err != nil || got.Name != p.Name || got.String() != p.Name {
				t.Errorf("%s is %s (%v)", name, got, err)
			}
		}
		if p.Doc == "" || strings.ContainsAny(p.Doc, "\n") {
			t.Errorf("%s has no line of documentation: %q", p, p.Doc)
		}
	}
	_, err := Lookup("none")
	want := `unknown profile "none": use one of te, ocp, torchao, microxcaling, ggml, modelopt, compressed-tensors, quark, mlx, deepseek, ` +
		`torchao-rceil, mlx-0.31`
	if err == nil || err.Error() != want {
		t.Errorf("says %v, want %s", err, want)
	}
}
