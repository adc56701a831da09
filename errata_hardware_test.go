package microscale_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
)

// checked looks up a layer whose operands have one format in the device table.
func checked(t *testing.T, name string, f quant.Format, m, n, k int) device.Answer {
	t.Helper()
	d, err := device.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	a, err := device.Check(device.Request{Device: d, Input: f, Weight: f, Grad: f, M: m, N: n, K: k})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// unitOf returns the unit of a model for operands of one type, and an instruction of k products; 0:
// the usual one.
func unitOf(t *testing.T, model, operand string, k int) *mma.Unit {
	t.Helper()
	m, err := mma.Lookup(model)
	if err != nil {
		t.Fatal(err)
	}
	a, err := mma.LookupType(operand)
	if err != nil {
		t.Fatal(err)
	}
	u, err := m.Unit(mma.Options{A: a, K: k})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestWholeBlocks: every instruction with block scales sums over whole blocks.
func TestWholeBlocks(t *testing.T) {
	scaled := 0
	for _, m := range mma.Models() {
		for _, u := range m.Units() {
			if u.Scale == nil {
				continue
			}
			scaled++
			for _, k := range u.Ks() {
				if k%u.Block != 0 {
					t.Errorf("%s: an instruction has K = %d, and blocks of %d", m, k, u.Block)
				}
			}
		}
	}
	if scaled == 0 || 16%quant.MXFP8.Block.Cols == 0 {
		t.Errorf("got %d scaled units, and blocks of %d", scaled, quant.MXFP8.Block.Cols)
	}
}

// TestScalePerBlock: two blocks of one dot product have separate scales, which no single scale
// of the result can replace.
func TestScalePerBlock(t *testing.T) {
	u := unitOf(t, "cdna4-mfma-scale", "e4m3", 0)
	a, b := make([]uint64, u.K), make([]uint64, u.K)
	for i := range a {
		a[i], b[i] = 0x38, 0x38 // 1
	}
	scales := make([]byte, u.Scales(u.K))
	for i := range scales {
		scales[i] = byte(127 + i)
	}
	ones := slices.Repeat([]byte{127}, len(scales))
	got := u.Out.Value(u.Dot(a, b, 0, scales, ones))
	if want := 32.0 * (1 + 2 + 4 + 8); got != want || len(scales) != 4 || u.Out.Name != "f32" {
		t.Errorf("got %v in %s from %d blocks, want %v", got, u.Out, len(scales), want)
	}
	if all := float64(u.K); math.Log2(got/all) == math.Trunc(math.Log2(got/all)) {
		t.Errorf("%v is a power of two times %v, so that one scale suffices", got, all)
	}
}

// TestOwnRates: the document's rates are wrong by its own units and clock.
func TestOwnRates(t *testing.T) {
	d := mi355x(t)
	corrects(t, "156 TFLOPS in FP32", fmt.Sprintf("%.0f by its own rate", float64(d.Units)*d.Clock*256/1e12))
	var own []any
	for _, perClock := range []float64{1024, 2048, 4096, 8192} {
		own = append(own, float64(d.Units)*d.Clock*perClock/1e12)
	}
	corrects(t, "630, 1260, 2516, 5043", fmt.Sprintf("%.0f, %.0f, %.0f, %.0f;", own...),
		fmt.Sprintf("%.0f, %.0f, %.0f and %.0f in BF16, MXFP8, MXFP6 and MXFP4", d.BF16.Value/1e12, d.FP8.Value/1e12, d.FP6.Value/1e12,
			d.FP4.Value/1e12))
}

func mi355x(t *testing.T) *device.Device {
	t.Helper()
	d, err := device.Lookup("mi355x")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestElementError measures E4M3 on values spread evenly over the logarithm of one binade.
func TestElementError(t *testing.T) {
	const n = 100_000
	sum, worst := 0.0, 0.0
	for i := range n {
		x := float32(math.Exp2((float64(i) + 0.5) / n))
		e := math.Abs(float64(format.E4M3.Decode(format.E4M3.Encode(x)))/float64(x) - 1)
		sum, worst = sum+e, max(worst, e)
	}
	near(t, "mean error", sum/n, 0.0225, 0.0001)
	near(t, "worst error", worst, 1.0/17, 0.0001)
	bound := math.Ldexp(1, -format.E4M3.Mantissa-1)
	if bound != 0.0625 {
		t.Errorf("half a step is %g of the power of two below, want 0.0625", bound)
	}
	corrects(t, "rounding error is 6.25 %", fmt.Sprintf("%g %%", 100*bound), fmt.Sprintf("1/17 = %.1f %%, the mean %.2f %%", 100*worst,
		100*sum/n))
}

// TestExponentAddition: adding to the exponent field of a subnormal code does not multiply its
// value.
func TestExponentAddition(t *testing.T) {
	const subnormal = 3 // 3·2^-9
	added := format.E4M3.Decode(subnormal + 1<<format.E4M3.Mantissa)
	if product := 2 * format.E4M3.Decode(subnormal); added == product || product != 6*0x1p-9 {
		t.Errorf("got %v by addition and %v by multiplication", added, product)
	}
	normal := uint32(0x38)
	if format.E4M3.Decode(normal+1<<format.E4M3.Mantissa) != 2*format.E4M3.Decode(normal) {
		t.Error("for a normal code, they differ")
	}
	if v := float64(format.E4M3.Max()) * float64(format.E8M0.Max()); v <= math.MaxFloat32 {
		t.Errorf("the largest value of MXFP8, %g, is within FP32", v)
	}
}

// TestDevicesOfFP8 lists the architectures with FP8 units before Blackwell.
func TestDevicesOfFP8(t *testing.T) {
	for name, target := range map[string]string{"l40s": "sm_89", "h100": "sm_90"} {
		a := checked(t, name, quant.FP8Tensor, 64, 64, 64)
		if got := a.Device.Arch.Target; got != target || !a.OK {
			t.Errorf("%s, %s: got %v, want FP8 on %s", name, got, a.Products[0].Problems, target)
		}
	}
}

// TestTransposes: data-center Blackwell needs no transpose for FP8, but one for every FP4
// operand; RTX Blackwell supports TN only.
func TestTransposes(t *testing.T) {
	for _, tc := range []struct {
		device string
		format quant.Format
		want   int
	}{{"b200", quant.FP8Tensor, 0}, {"b200", quant.MXFP8, 0}, {"b200", quant.NVFP4, 3}, {"rtx-pro-6000", quant.FP8Tensor, 3},
		{"h100", quant.FP8Tensor, 3}} {
		n := 0
		for _, p := range checked(t, tc.device, tc.format, 64, 64, 64).Products {
			for _, o := range []device.Operand{p.A, p.B} {
				if o.Transposed {
					n++
				}
			}
		}
		if n != tc.want {
			t.Errorf("%s on %s: got %d transposed copies, want %d", tc.format, tc.device, n, tc.want)
		}
	}
}

// TestDevicesOfMXFP8: RTX Blackwell multiplies MXFP8, but Transformer Engine does not use it.
func TestDevicesOfMXFP8(t *testing.T) {
	a := checked(t, "rtx-pro-6000", quant.MXFP8, 128, 128, 128)
	if te := a.Libraries[0]; !a.OK || te.OK || !strings.Contains(te.Says, "not supported on 12.0+") {
		t.Errorf("got %v; %+v", a.OK, te)
	}
}

// TestRecipeErrors: the errors of Transformer Engine and Megatron-LM on H100.
func TestRecipeErrors(t *testing.T) {
	a := checked(t, "h100", quant.MXFP8, 128, 128, 128)
	if te := a.Libraries[0]; te.OK || !strings.HasPrefix(te.Says, "RuntimeError: Device compute capability 10.0") {
		t.Errorf("got %+v", te)
	}
	versions := checked(t, "b200", quant.MXFP8, 128, 128, 128).Libraries[1]
	for _, v := range []string{"2.2.0.dev0 for Float8CurrentScaling", "2.1.0 for MXFP8BlockScaling", "2.3.0.dev0 for Float8BlockScaling"} {
		if !strings.Contains(versions.Says, v) {
			t.Errorf("%q does not have %q", versions.Says, v)
		}
	}
	if strings.Contains(versions.Says, "Delayed") {
		t.Errorf("%q has a version for delayed scaling", versions.Says)
	}
}

// TestScaleFormats: FP32 has subnormal powers of two that E8M0 lacks.
func TestScaleFormats(t *testing.T) {
	if s := format.E8M0.Smallest(); s != 0x1p-127 {
		t.Errorf("got %g as E8M0's smallest, want 2^-127", s)
	}
	if s := format.F32.Smallest(); s != 0x1p-149 {
		t.Errorf("got %g as FP32's smallest, want 2^-149", s)
	}
}

// TestScaleTile: 128×4 scales cover 128×128 elements of MXFP8, and 128×64 of NVFP4.
func TestScaleTile(t *testing.T) {
	for f, cols := range map[string]int{"mxfp8": 128, "nvfp4": 64} {
		row, err := quant.Lookup(f)
		if err != nil {
			t.Fatal(err)
		}
		rows, blocks := row.ScaleShape(128, cols)
		if rows != 128 || blocks != 4 || layout.Swizzled.Size(rows, blocks) != rows*blocks {
			t.Errorf("%s: 128×%d elements have %d×%d scales in %d bytes", f, cols, rows, blocks, layout.Swizzled.Size(rows, blocks))
		}
	}
}

// TestFP4HasNoNaN: a NaN becomes the largest value.
func TestFP4HasNoNaN(t *testing.T) {
	if format.E2M1.HasNaN() {
		t.Error("E2M1 has a NaN")
	}
	if v := format.E2M1.Decode(format.E2M1.Encode(float32(math.NaN()))); v != 6 {
		t.Errorf("NaN becomes %v, want 6", v)
	}
}

// TestThresholdSizes computes the sizes from which quantization pays at the peaks of HGX B200,
// as microscale cost --tables prints them.
func TestThresholdSizes(t *testing.T) {
	d, err := device.Lookup("b200")
	if err != nil {
		t.Fatal(err)
	}
	var sizes []string
	for _, tc := range []struct {
		format quant.Format
		reads  int
		want   float64
	}{{quant.MXFP8, 1, 1772}, {quant.NVFP4, 2, 1778}, {quant.NVFP4, 1, 998}} {
		found := false
		for _, x := range cost.Thresholds(d, tc.format, tc.reads) {
			if x.Name == "forward" {
				found = true
				near(t, tc.format.Name, x.Size, tc.want, 1)
				sizes = append(sizes, fmt.Sprintf("%.0f", x.Size))
			}
		}
		if !found {
			t.Errorf("%s has no threshold of a forward product", tc.format)
		}
	}
	corrects(t, "pays from about 2048", sizes...)
	near(t, "peak of FP4 over BF16", d.FP4.Value/d.BF16.Value, 4, 0.001)
	near(t, "peak of FP8 over BF16", d.FP8.Value/d.BF16.Value, 2, 0.001)
}
