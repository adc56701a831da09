package quant

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// splitMix is the SplitMix64 generator of the golden inputs.
type splitMix uint64

func (s *splitMix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// goldenInput returns 131072 values of all signs and of exponents 107 to 139.
func goldenInput(t testing.TB) []float32 {
	x := make([]float32, 131072)
	raw := make([]byte, 4*len(x))
	state := splitMix(777)
	for i := range x {
		u := state.next()
		bits := uint32(u>>63)<<31 | uint32(107+(u>>40)%33)<<23 | uint32(u&0x7fffff)
		x[i] = math.Float32frombits(bits)
		binary.LittleEndian.PutUint32(raw[4*i:], bits)
	}
	if got := shortHash(raw); got != "1c963c2305184ff6" {
		t.Fatalf("golden input hashes to %s: the generator is wrong", got)
	}
	return x
}

func shortHash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// codes returns the codes of t one per byte.
func codes(t *Tensor) []byte {
	out := make([]byte, t.StoredRows()*t.paddedCols())
	for l := range t.StoredRows() {
		t.Format.Element.Split(out[l*t.paddedCols():(l+1)*t.paddedCols()], t.row(l))
	}
	return out
}

// TestGoldenBlocks compares whole tensors, by hash, with an independent
// implementation of the scale rules.
func TestGoldenBlocks(t *testing.T) {
	x := tensor.Of(1, 131072, goldenInput(t))
	for _, tc := range []struct {
		format Format
		rule   ScaleRule
		scale  byte
		codes  string
		hash   string
	}{
		{MXFP8, Floor, 0x83, "0580620019808002", "637631d0bad17958"},
		{MXFP8, RatioCeil, 0x84, "03805a0011808001", "f254ddc592016fb6"},
		{MXFP8, Even, 0x83, "0580620019808002", "e1572b485e94efaf"},
		{MXFP8E5M2, Floor, 0x7c, "3d8f6d2c488b8837", "fde81d8ea259b573"},
		{MXFP8E5M2, Ceil, 0x7d, "398b692844878433", "11d853e21e59d58f"},
		{MXFP6E2M3, Floor, 0x89, "0020050000202000", "dcc952dbf8fa14fe"},
		{MXFP6E3M2, Floor, 0x87, "0020110000202000", "40f95da21e4d2893"},
		{MXFP4, Floor, 0x89, "0008010000080800", "e5a658f8fcf2cb9c"},
		{MXFP4, RatioCeil, 0x8a, "0008010000080800", "ce4eb1140606ec2e"},
		{MXFP4, Ceil, 0x8a, "0008010000080800", "dd2c0ec40fc2bb0a"},
	} {
		t.Run("format="+tc.format.Name+"/rule="+tc.rule.String(), func(t *testing.T) {
			q, err := Quantizer{Format: tc.format, Rule: tc.rule}.Rowwise(x, With{})
			if err != nil {
				t.Fatal(err)
			}
			c := codes(q)
			if q.Scales[0] != tc.scale {
				t.Errorf("first scale is %#x, want %#x", q.Scales[0], tc.scale)
			}
			if got := hex.EncodeToString(c[:8]); got != tc.codes {
				t.Errorf("first codes are %s, want %s", got, tc.codes)
			}
			if got := shortHash(q.Scales, c); got != tc.hash {
				t.Errorf("scales and codes hash to %s, want %s", got, tc.hash)
			}
		})
	}
}

// TestGoldenNVFP4 follows Transformer Engine's two-level scaling on the same input.
func TestGoldenNVFP4(t *testing.T) {
	x := tensor.Of(1, 131072, goldenInput(t))
	q, err := Quantizer{Format: NVFP4}.Rowwise(x, With{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(q.Amax)-8191.924) > 0.001 {
		t.Errorf("amax is %v, want 8191.924", q.Amax)
	}
	if encode := globalEncodeFirst(q.Amax, format.E2M1.Max(), scaleFormat.Max()).encode; math.Float32bits(encode) != 0x3ea80066 {
		t.Errorf("encode scale is %#x, want 0x3ea80066", math.Float32bits(encode))
	}
	if got := hex.EncodeToString(q.Scales[:4]); got != "7b7d7469" {
		t.Errorf("first scales are %s, want 7b7d7469", got)
	}
	if got := hex.EncodeToString(codes(q)[:8]); got != "0008010000080800" {
		t.Errorf("first codes are %s, want 0008010000080800", got)
	}
	for i, s := range q.Scales {
		if s == 0 {
			t.Fatalf("scale %d is zero", i)
		}
	}
}

// TestGoldenExponentCodes checks E8M0 scales of single amaxes for both FP8 formats.
func TestGoldenExponentCodes(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, tc := range []struct {
		amax       float32
		e4m3, e5m2 byte
	}{
		{0, 0, 0}, {0x1p-149, 0, 0}, {0x1p-127, 0, 0}, {0x1p-126, 0, 0},
		{1e-6, 99, 92}, {0.5, 118, 111}, {1, 119, 112}, {1.75, 119, 112}, {1.7578125, 120, 113},
		{2, 120, 113}, {3.5, 120, 113}, {7, 121, 114}, {100, 125, 118},
		{448, 127, 120}, {449, 128, 121}, {464, 128, 121}, {480, 128, 121}, {512, 128, 121}, {896, 128, 121},
		{57344, 134, 127}, {65504, 135, 128}, {1e30, 218, 211}, {math.MaxFloat32, 247, 240}, {inf, 254, 254},
	} {
		for _, exact := range []bool{false, true} {
			a := &Quantizer{Format: MXFP8, ExactRatio: exact}
			b := &Quantizer{Format: MXFP8E5M2, ExactRatio: exact}
			bits := math.Float32bits(tc.amax)
			if e4m3, e5m2 := a.exponentCode(bits), b.exponentCode(bits); e4m3 != tc.e4m3 || e5m2 != tc.e5m2 {
				t.Errorf("amax %g, exact %v: scales %d and %d, want %d and %d", tc.amax, exact, e4m3, e5m2, tc.e4m3, tc.e5m2)
			}
		}
	}
}

// TestGoldenFP32Scales checks encode scales of single amaxes, plain and as
// powers of two, against Transformer Engine's compute_scale_from_amax.
func TestGoldenFP32Scales(t *testing.T) {
	for _, tc := range []struct {
		amax        float32
		plain, pow2 uint32
	}{
		{0, 0x3f800000, 0x3f800000}, {1e-40, 0x7f7fffff, 0x7f000000}, {1e-6, 0x4dd59f80, 0x4d800000},
		{0.3, 0x44baaaaa, 0x44800000}, {1, 0x43e00000, 0x43800000}, {3, 0x43155555, 0x43000000},
		{448, 0x3f800000, 0x3f800000}, {1000, 0x3ee56042, 0x3e800000}, {3e38, 0x03fe13d7, 0x03800000},
		{float32(math.Inf(1)), 0x3f800000, 0x3f800000},
	} {
		for pow2, want := range map[bool]uint32{false: tc.plain, true: tc.pow2} {
			_, f := encodeFirst(tc.amax, format.E4M3.Max(), pow2)
			if got := math.Float32bits(f.value); got != want {
				t.Errorf("amax %g, power of two %v: encode scale %#x, want %#x", tc.amax, pow2, got, want)
			}
		}
	}
}

// TestGoldenGlobalScales checks both directions of NVFP4's global scale.
func TestGoldenGlobalScales(t *testing.T) {
	for _, tc := range []struct {
		amax           float32
		encode, decode uint32
	}{
		{0, 0x3f800000, 0x3f800000}, {1e-36, 0x7f7fffff, 0x00200000}, {1, 0x45280000, 0x39c30c31},
		{6, 0x43e00000, 0x3b124925}, {2688, 0x3f800000, 0x3f800000}, {1e5, 0x3cdc3372, 0x4214cf3d},
		{3e38, 0x053e8ee1, 0x79abf542}, {float32(math.Inf(1)), 0x3f800000, 0x3f800000},
	} {
		g := globalEncodeFirst(tc.amax, format.E2M1.Max(), scaleFormat.Max())
		if e, d := math.Float32bits(g.encode), math.Float32bits(g.decode); e != tc.encode || d != tc.decode {
			t.Errorf("amax %g: encode %#x decode %#x, want %#x and %#x", tc.amax, e, d, tc.encode, tc.decode)
		}
	}
}
