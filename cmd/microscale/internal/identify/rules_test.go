package identify

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// layers are the distributions of the values of a layer: normal, heavy tails (Student's t of 3 degrees of freedom), and normal with a width
// for each row and column, of which one column in 64 is ten times as wide.
var layers = []struct {
	name   string
	values func(r *rand.Rand, rows, cols int) func(i, j int) float64
}{
	{"normal", func(r *rand.Rand, _, _ int) func(i, j int) float64 {
		width := 0.02 * math.Exp2(r.Float64())
		return func(_, _ int) float64 { return width * r.NormFloat64() }
	}},
	{"heavy tails", func(r *rand.Rand, _, _ int) func(i, j int) float64 {
		width := 0.02 * math.Exp2(r.Float64())
		return func(_, _ int) float64 {
			return width * r.NormFloat64() / math.Sqrt((square(r.NormFloat64())+square(r.NormFloat64())+square(r.NormFloat64()))/3)
		}
	}},
	{"outlier columns", func(r *rand.Rand, rows, cols int) func(i, j int) float64 {
		high, wide := make([]float64, rows), make([]float64, cols)
		width := 0.02 * math.Exp2(r.Float64())
		for i := range high {
			high[i] = width * math.Exp(0.2*r.NormFloat64())
		}
		for j := range wide {
			wide[j] = math.Exp(0.3 * r.NormFloat64())
			if r.IntN(64) == 0 {
				wide[j] *= 10
			}
		}
		return func(i, j int) float64 { return high[i] * wide[j] * r.NormFloat64() }
	}},
}

func square(x float64) float64 { return x * x }

// layer returns a BF16 matrix of some blocks, 128 columns wide where blocks are narrower.
func layer(r *rand.Rand, kind int, f quant.Format, blocks int) tensor.BF16 {
	const narrow = 128
	rows, cols := blocks, narrow
	if f.Block.Cols > 0 {
		across := max(1, min(blocks, narrow/f.Block.Cols))
		rows, cols = max(1, f.Block.Rows)*(blocks/across), f.Block.Cols*across
	}
	raw := make([]byte, 2*rows*cols)
	value := layers[kind].values(r, rows, cols)
	for i := range rows {
		for j := range cols {
			binary.LittleEndian.PutUint16(raw[2*(i*cols+j):], uint16(format.BF16.Encode(float32(value(i, j)))))
		}
	}
	return tensor.OfBF16(rows, cols, raw)
}

// judged returns the verdict of codes and scales.
func judged(t *testing.T, q *quant.Tensor, writers []writer) (one Weight) {
	t.Helper()
	c := census{f: q.Format, global: 1, zeros: map[byte]int64{}}
	if q.Format.Global {
		c.global = q.Global
	}
	one.Blocks = c.add(q)
	if err := one.judge(&c, writers); err != nil {
		t.Fatal(err)
	}
	return one
}

// A share is what became of weights.
type share struct{ right, wrong, unknown int }

func (s *share) count(one Weight, rule string) {
	switch {
	case !one.Known:
		s.unknown++
	case strings.HasPrefix(one.Verdict, rule+":"):
		s.right++
	default:
		s.wrong++
	}
}

// ruled judges one weight of each profile and format. Blocks are fewer where they have more than limit elements in all.
func ruled(t *testing.T, blocks, limit, kind int, seed uint64, shares map[string]*share) {
	t.Helper()
	for _, f := range quant.Formats() {
		area := max(1, f.Block.Rows*f.Block.Cols)
		if !f.Scaled() || area*blocks > 1<<22 {
			continue
		}
		blocks := min(blocks, limit/area)
		writers, err := writersOf(f)
		if err != nil {
			t.Fatal(err)
		}
		for k := range writers {
			q, err := writers[k].q.RowwiseBF16(layer(rand.New(rand.NewPCG(seed, uint64(k))), kind, f, blocks), quant.With{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			one := judged(t, q, writers)
			for _, key := range []string{f.Name, "all"} {
				if shares[key] == nil {
					shares[key] = &share{}
				}
				shares[key].count(one, writers[k].rule)
			}
			if one.Known && !strings.HasPrefix(one.Verdict, writers[k].rule+":") {
				t.Logf("%d blocks, %s, %s by %s: %s %+v", blocks, layers[kind].name, f, writers[k], one.Verdict, one.Candidates)
			}
		}
	}
}

// TestRules: without the source, the rule of scales of weights of all profiles is named, or unknown. One distribution stands for all.
func TestRules(t *testing.T) {
	shares := map[string]*share{}
	ruled(t, 64, 1<<17, 1, 1, shares)
	if s := shares["all"]; s.wrong > 0 || 100*s.right < 85*(s.right+s.unknown) {
		t.Errorf("%+v", *s)
	}
}

// TestDegenerateGlobal judges weights whose global scale is no positive finite number, or a very small one: of zeros, and damaged.
func TestDegenerateGlobal(t *testing.T) {
	writers, err := writersOf(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []float32{0, 1} {
		x := layer(rand.New(rand.NewPCG(1, 1)), 0, quant.NVFP4, least)
		if width == 0 {
			clear(x.Data)
		}
		q, err := quant.Quantizer{Format: quant.NVFP4}.RowwiseBF16(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		for _, global := range []float32{0, math.SmallestNonzeroFloat32, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN()), -1} {
			q.Global = global
			if one := judged(t, q, writers); one.Known && width == 0 {
				t.Errorf("zeros under the global scale %g: %s", global, one.Verdict)
			}
		}
	}
}

// TestRulesAll is TestRules of all distributions and sizes, several times: the table of docs/identify.md.
func TestRulesAll(t *testing.T) {
	slow.Full(t, "it judges thousands of weights, of which TestRules has one of each kind")
	for _, tc := range []struct{ blocks, percent int }{{64, 88}, {256, 95}, {4096, 97}} {
		total := share{}
		for kind := range layers {
			shares := map[string]*share{}
			for seed := range uint64(2) {
				ruled(t, tc.blocks, 1<<22, kind, 10*seed+uint64(kind), shares)
			}
			for name, s := range shares {
				t.Logf("%4d blocks, %s, %s: right %d, wrong %d, unknown %d", tc.blocks, layers[kind].name, name, s.right, s.wrong, s.unknown)
			}
			all := shares["all"]
			total = share{total.right + all.right, total.wrong + all.wrong, total.unknown + all.unknown}
		}
		if n := total.right + total.wrong + total.unknown; 100*total.right < tc.percent*n || 100*total.wrong > n {
			t.Errorf("%d blocks: %+v", tc.blocks, total)
		}
	}
}

// TestSearched: four over six is named, and least squares in NVFP4 has no rule.
func TestSearched(t *testing.T) {
	writers, err := writersOf(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	x := layer(rand.New(rand.NewPCG(1, 1)), 0, quant.NVFP4, 256)
	for want, q := range map[string]quant.Quantizer{
		"four over six": {Format: quant.NVFP4, Search: quant.FourOverSixMSE, TopScale: quant.FourOverSixTop},
		unknown:         {Format: quant.NVFP4, Search: quant.LeastSquares},
	} {
		made, err := q.RowwiseBF16(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		if one := judged(t, made, writers); !strings.HasPrefix(one.Verdict, want) {
			t.Errorf("%s: %s", want, one.Verdict)
		}
	}
	if writers, err = writersOf(quant.FP8Block); err != nil {
		t.Fatal(err)
	}
	q := quant.Quantizer{Format: quant.FP8Block, PowerOfTwo: true}
	made, err := q.RowwiseBF16(layer(rand.New(rand.NewPCG(1, 1)), 0, q.Format, 64), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if one := judged(t, made, writers); !strings.HasPrefix(one.Verdict, "powers of two") {
		t.Error(one.Verdict)
	}
}
