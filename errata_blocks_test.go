package microscale_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// The tests of this file check the rows of docs/errata.md on block sizes and hardware.

// near reports an error if a value differs from want by more than half a unit of the last digit
// given.
func near(t *testing.T, what string, got, want, digit float64) {
	t.Helper()
	if math.Abs(got-want) > digit/2 {
		t.Errorf("%s is %.6g, want %g", what, got, want)
	}
}

// overhead returns the bytes of scales relative to those of FP8 codes, in percent.
func overhead(scale *format.Scalar, block int) float64 {
	return 100 * float64(scale.StoredBits()) / float64(8*block)
}

func TestScaleOverhead(t *testing.T) {
	at32, at8 := overhead(format.E8M0, 32), overhead(format.E8M0, 8)
	near(t, "overhead of E8M0 scales of 32 elements", at32, 3.125, 0)
	near(t, "overhead of E8M0 scales of 8 elements", at8, 12.5, 0)
	near(t, "growth from 32 elements to 8", at8/at32, 4, 0)
	near(t, "overhead of FP32 scales of 32 elements", overhead(format.F32, 32), 12.5, 0)
	for size, want := range map[int]float64{32: at32, 8: at8} {
		f := quant.MXFP8
		f.Block.Cols = size
		near(t, fmt.Sprintf("overhead of blocks of %d", size), 100*(f.BitsPerElement()/8-1), want, 0)
	}
	corrects(t, "under 2 %", fmt.Sprintf("%g %%", at32))
	corrects(t, "about 3 %", fmt.Sprintf("%g %%; a scale of one byte adds %g %%", overhead(format.F32, 32), at32))
	corrects(t, "the overhead doubles", fmt.Sprintf("from %g %%", at32))
}

func TestBlockMaximum(t *testing.T) {
	asymptote := func(n int) float64 { return math.Sqrt(2 * math.Log(float64(n))) }
	for n, want := range map[int]float64{8: 1.783, 32: 2.347, 128: 2.828} {
		near(t, "mean of the largest of "+strconv.Itoa(n), cost.ExpectedMaximum(n), want, 0.001)
		if excess := asymptote(n)/cost.ExpectedMaximum(n) - 1; excess < 0.10 || 0.15 < excess {
			t.Errorf("sqrt(2 ln %d) is %.1f %% above it", n, 100*excess)
		}
	}
	corrects(t, "√(2 ln B)", fmt.Sprintf("%.2f against %.2f at B = 32", asymptote(32), cost.ExpectedMaximum(32)))
	relative := func(n int) (formula, maxima float64) { // to blocks of 32
		return asymptote(n)/asymptote(32) - 1, cost.ExpectedMaximum(n)/cost.ExpectedMaximum(32) - 1
	}
	formula128, true128 := relative(128)
	formula8, true8 := relative(8)
	near(t, "scale error of 128 by the formula", 100*formula128, 18.3, 0.1)
	near(t, "scale error of 8 by the formula", 100*formula8, -22.5, 0.1)
	near(t, "scale error of 128", 100*true128, 20.5, 0.1)
	near(t, "scale error of 8", 100*true8, -24.0, 0.1)
	corrects(t, "scale errors of +15 %", fmt.Sprintf("%+.1f %% and −%.1f %% by its formula; %+.1f %% and −%.1f %%", 100*formula128,
		-100*formula8, 100*true128, -100*true8))
}

// TestResolution measures the largest relative error of normal values, which is half a step
// above a power of two.
func TestResolution(t *testing.T) {
	for _, tc := range []struct {
		element *format.Scalar
		half    float64 // step, over the power of two
		worst   float64 // relative error
	}{
		{format.E4M3, 0.0625, 1.0 / 17}, {format.E5M2, 0.125, 1.0 / 9}, {format.E3M2, 0.125, 1.0 / 9},
		{format.E2M3, 0.0625, 1.0 / 17}, {format.E2M1, 0.25, 1.0 / 5},
	} {
		one := tc.element.Encode(1)
		near(t, tc.element.Name+": half a step at 1", float64(tc.element.Decode(one+1)-1)/2, tc.half, 0)
		worst := 0.0
		for x := float32(1); x < 2; x += 0x1p-10 {
			worst = max(worst, math.Abs(float64(tc.element.Decode(tc.element.Encode(x))/x-1)))
		}
		near(t, tc.element.Name+": worst error", worst, tc.worst, 1e-6)
	}
}

func TestSpan(t *testing.T) {
	orders := func(largest, smallest float64) float64 { return math.Log10(largest / smallest) }
	mx := orders(float64(format.E8M0.Max())*float64(format.E4M3.Max()), float64(format.E8M0.Smallest())*float64(format.E4M3.Smallest()))
	near(t, "orders of magnitude of MXFP8", mx, 81.8, 0.1)
	near(t, "orders of magnitude of FP32", orders(math.MaxFloat32, math.SmallestNonzeroFloat32), 83.4, 0.1)
	if v := float64(format.E8M0.Max()) * float64(format.E4M3.Smallest()); v != 0x1p118 {
		t.Errorf("the smallest value under the largest scale is %g, want 2^118", v)
	}
	near(t, "2^118 in 1e35", 0x1p118/1e35, 3.32, 0.01)
	corrects(t, "3.3·10^36", fmt.Sprintf("2^118 = %.1f·10^35", 0x1p118/1e35))
	corrects(t, "a range of 10^81", fmt.Sprintf("10^%.1f, MXFP8 10^%.1f", orders(math.MaxFloat32, math.SmallestNonzeroFloat32), mx))
}

// TestSmallElements quantizes a small value in a block with a large amax.
func TestSmallElements(t *testing.T) {
	for _, tc := range []struct{ x, want float32 }{
		{448.0 / 28672 * 1.125, 448.0 / 28672 * 1.125}, // a normal number
		{0.0048828125, 0.00390625},                     // 2.5 steps of the subnormals: 2
		{0x1p-11, 0},                                   // less than half the smallest
	} {
		if got := rowwise(t, quant.MXFP8, 448, tc.x).Dequantize(1).Data[1]; got != tc.want {
			t.Errorf("beside 448, %g becomes %g, want %g", tc.x, got, tc.want)
		}
	}
}

// erratum returns the cells of the row of docs/errata.md that contains text.
func erratum(t *testing.T, text string) []string {
	t.Helper()
	for _, row := range errata(t) {
		if strings.Contains(strings.Join(row, "|"), text) {
			return row
		}
	}
	t.Fatalf("no row of docs/errata.md contains %q", text)
	return nil
}

// corrects checks that the row of docs/errata.md that contains claim has each figure in its correction.
func corrects(t *testing.T, claim string, figures ...string) {
	t.Helper()
	row := erratum(t, claim)
	for _, figure := range figures {
		if !strings.Contains(row[2], figure) {
			t.Errorf("docs/errata.md corrects %q by %q, want %q", row[1], row[2], figure)
		}
	}
}

// errata returns the cells of all rows of docs/errata.md.
func errata(t *testing.T) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("docs/errata.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/errata.md has no table of four columns")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 4 {
			t.Fatalf("a row of docs/errata.md has %d cells, want 4: %s", len(cells), line)
		}
		rows = append(rows, cells)
	}
	return rows
}

var (
	shapePattern       = regexp.MustCompile(`(\d+)[xX](\d+)[xX](\d+)`)
	instructionPattern = regexp.MustCompile(`V_MFMA_SCALE\w+`)
)

// TestMatrixInstructions parses the shapes M×N×K in the names of instructions. A scale covers
// 32 elements along K. Package mma has the instructions of the correction, and no others with scales.
func TestMatrixInstructions(t *testing.T) {
	row := erratum(t, "V_MFMA_SCALE")
	var operations []int
	for _, m := range shapePattern.FindAllStringSubmatch(row[2], 2) {
		rows, _ := strconv.Atoi(m[1])
		cols, _ := strconv.Atoi(m[2])
		depth, _ := strconv.Atoi(m[3])
		if depth%quant.MXFP8.Block.Cols != 0 {
			t.Errorf("%s does not hold whole blocks of %s", m[0], quant.MXFP8)
		}
		operations = append(operations, 2*rows*cols*depth)
	}
	if len(operations) != 2 || operations[0] != 65536 || operations[1] != 131072 {
		t.Errorf("%q has %d operations, want 65536 and 131072", row[2], operations)
	}
	var names []string
	for _, k := range unitOf(t, "cdna4-mfma-scale", "e4m3", 0).Ks() {
		names = append(names, unitOf(t, "cdna4-mfma-scale", "e4m3", k).Instructions()...)
	}
	if got := strings.ToLower(strings.Join(instructionPattern.FindAllString(row[2], -1), " ")); got != strings.Join(names, " ") {
		t.Errorf("docs/errata.md has the instructions %s, want %s", got, strings.Join(names, " "))
	}
	if m := shapePattern.FindStringSubmatch(row[1]); m == nil || m[3] != "16" {
		t.Errorf("%q does not begin with half a block", row[1])
	}
}

// TestThroughput compares operations per clock and compute unit with the peaks that AMD
// publishes for the MI355X, and the device table with those peaks.
func TestThroughput(t *testing.T) {
	d := mi355x(t)
	rates := map[string]float64{"BF16": d.BF16.Value, "MXFP8": d.FP8.Value, "MXFP6": d.FP6.Value, "MXFP4": d.FP4.Value}
	for _, tc := range []struct {
		name      string
		published float64 // TFLOP/s
		claimed   int     // operations per clock and unit, by the document
		low       float64 // by this factor
	}{
		{"FP32", 157.3, 256, 1}, {"BF16", 2516.6, 1024, 4}, {"MXFP8", 5033.2, 2048, 4}, {"MXFP6", 10066.3, 4096, 4}, {"MXFP4", 10066.3, 8192, 2},
	} {
		if rate, ok := rates[tc.name]; ok {
			near(t, "rate of "+tc.name+" in the table", rate/1e12, tc.published, 0.1)
		}
		perClock := tc.published * 1e12 / float64(d.Units) / d.Clock
		near(t, "operations per clock in "+tc.name, perClock/float64(tc.claimed), tc.low, 0.01)
		if want := strconv.Itoa(int(math.Round(perClock/256)) * 256); !strings.Contains(erratum(t, "ops/clk/CU")[2], want) {
			t.Errorf("the row of docs/errata.md does not have %s's %s operations per clock", tc.name, want)
		}
	}
}

// TestUnscaledUnits shows that a matrix unit without scales cannot compute a product of MXFP8:
// two operands with equal codes have different values. Read as FP16, the codes are other
// numbers. Hopper's FP8 instruction is that of the correction, without scales.
func TestUnscaledUnits(t *testing.T) {
	u := unitOf(t, "hopper-wgmma", "e4m3", 0)
	_, types, _ := strings.Cut(strings.Join(u.Instructions(), " "), "k32")
	if corrects(t, "wgmma `.f32.f16.f16`", "`"+types+"`"); u.Scale != nil {
		t.Errorf("got scales of %s", u.Scale)
	}
	x, y := make([]float32, 64), make([]float32, 64)
	for i := range x {
		x[i] = float32(i%7) + 1
		y[i] = x[i]
		if i >= 32 {
			y[i] *= 8
		}
	}
	a, b := rowwise(t, quant.MXFP8, x...), rowwise(t, quant.MXFP8, y...)
	if string(a.Codes) != string(b.Codes) || string(a.Scales) == string(b.Scales) {
		t.Errorf("codes %x and %x, scales %x and %x", a.Codes, b.Codes, a.Scales, b.Scales)
	}
	if format.FP16.StoredBits() != 16 || format.FP16.Decode(uint32(a.Codes[0])|uint32(a.Codes[1])<<8) == a.Dequantize(1).Data[0] {
		t.Error("two codes of E4M3 are an FP16 number of the same value")
	}
}

// TestRanks: the scales of a shard of rows equal those of the whole tensor, except for a single
// scale per tensor.
func TestRanks(t *testing.T) {
	x := tensor.New(64, 64)
	random := quant.Stream{Seed: 7}
	for i := range x.Data {
		x.Data[i] = float32(i+1) * (float32(random.At(uint64(i)))*0x1p-31 - 1)
	}
	for _, tc := range []struct {
		format quant.Format
		same   bool
	}{{quant.MXFP8, true}, {quant.FP8Vec128, true}, {quant.FP8Tensor, false}} {
		q := quant.Quantizer{Format: tc.format}
		whole, err := q.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		shard, err := q.Rowwise(tensor.Of(32, 64, x.Data[:32*64]), quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		if same := strings.HasPrefix(string(whole.ScaleBytes()), string(shard.ScaleBytes())); same != tc.same {
			t.Errorf("%s: a rank has the scales of the whole: %v, want %v", tc.format, same, tc.same)
		}
	}
}

// TestLossDependsOnData: no single figure is the error of a format. Powers of two have none;
// other data have an SQNR of tens of decibels.
func TestLossDependsOnData(t *testing.T) {
	sqnr := func(fill func(i int) float32) float64 {
		x := tensor.New(32, 256)
		for i := range x.Data {
			x.Data[i] = fill(i)
		}
		sums := measure.New(32)
		w, err := quant.Quantizer{Format: quant.MXFP8}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		sums.Add(x.Data, w.Dequantize(0).Data)
		return sums.Result().SQNR
	}
	random := quant.Stream{Seed: 3}
	if v := sqnr(func(i int) float32 { return float32(int(1) << (i % 8)) }); !math.IsInf(v, 1) {
		t.Errorf("powers of two have an SQNR of %g dB, want no error", v)
	}
	if v := sqnr(func(i int) float32 { return float32(random.At(uint64(i))) }); v < 25 || 40 < v {
		t.Errorf("uniform values have an SQNR of %g dB, want 25 to 40", v)
	}
}

// TestDecodeScale: the tensor of amax 800 in the document is multiplied by 0.56 and later
// divided by it. The stored scale is the inverse.
func TestDecodeScale(t *testing.T) {
	w := rowwise(t, quant.FP8Tensor, 800, -100)
	near(t, "decode scale", float64(w.Scales32[0]), 1/0.56, 1e-6)
	for i, code := range w.Codes {
		if got, want := w.Dequantize(1).Data[i], float32(w.Scales32[0]*format.E4M3.Decode(uint32(code))); got != want {
			t.Errorf("element %d is %g, want scale × code = %g", i, got, want)
		}
	}
}
