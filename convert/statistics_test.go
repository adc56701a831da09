package convert

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// statisticsOf returns the statistics of an input of some columns, of which the first are much larger, that
// modules read.
func statisticsOf(t *testing.T, cols int, hessian bool, modules ...string) *calibration.Statistics {
	t.Helper()
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &calibration.Collector{Dir: filepath.Dir(path), Out: path, Hessian: hessian,
		Layers: [][]calibration.Linear{{{Name: "input", Width: cols, Modules: modules}}}}
	x := tensor.New(3*cols, cols)
	for i := range x.Data {
		col := i % cols
		x.Data[i] = float32((math.Sin(float64(i*i%977)) + math.Sin(float64(i/cols))) * 8 / float64(1+col))
	}
	if err := errors.Join(c.Add("input", x), c.Finish(t.Context(), 0), c.Join(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, err := calibration.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestMethods quantizes with statistics: tile by tile, the weights are what the method makes of them whole,
// with the global scale of siblings.
func TestMethods(t *testing.T) {
	const bf16, cols = safetensors.BF16, 96
	shape := []int64{300, cols}
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"l.0.q_proj.weight", bf16, 1, shape}, {"l.0.k_proj.weight", bf16, 2, shape}, {"norm.weight", bf16, 1, []int64{cols}}}}, madeConfig))
	s := statisticsOf(t, cols, true, "l.0.q_proj", "l.0.k_proj")
	in, _ := s.Of("l.0.q_proj")
	for _, f := range []quant.Format{quant.NVFP4, quant.MXFP4, quant.MXFP8} {
		for _, method := range []calibration.Method{calibration.Search, calibration.Solve} {
			o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: checkpoint.Plain().Name, Method: method, Statistics: s}
			dst := filepath.Join(t.TempDir(), "out")
			quantize(t, src, dst, o, RunOptions{})
			got := openModel(t, dst)
			report := compare(t, src, got)
			if moves := report.Checked(verify.Calibrated); (moves == 2) != (method == calibration.Solve) || report.Checked(verify.Bounded)+
				moves != 2 {
				t.Errorf("%s in %s: %d weights are compared as calibrated", method, f, moves)
			}
			q, err := method.Quantizer(o.Quantizer)
			if err != nil {
				t.Fatal(err)
			}
			var values []tensor.Dense
			var amax float32
			for _, name := range []string{"l.0.q_proj.weight", "l.0.k_proj.weight"} {
				w, _ := src.Lookup(name)
				x, err := w.Read(0, int(shape[0]))
				if err != nil {
					t.Fatal(err)
				}
				values, amax = append(values, x), max(amax, quant.Amax(x, 1))
			}
			for i, name := range []string{"l.0.q_proj.weight", "l.0.k_proj.weight"} {
				with := quant.With{Amax: &amax, Importance: in.Square, Mean: in.Mean}
				want, err := q.Rowwise(values[i], with)
				if method == calibration.Solve {
					h, hessianErr := in.Hessian()
					factor, factorErr := calibration.NewFactor(h, cols)
					if err = errors.Join(hessianErr, factorErr); err == nil {
						want, err = calibration.GPTQ(q, values[i], with, factor)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				w, _ := got.Lookup(name)
				stored, err := w.ReadCodes(checkpoint.Tile{To: int(shape[0]), ToCol: cols})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(stored.Codes, want.Codes) || !bytes.Equal(stored.Scales, want.Scales) || stored.Global != want.Global {
					t.Errorf("%s in %s by %s: other codes or scales than of the whole weight", name, f, method)
				}
			}
		}
	}
}

// TestMethodErrors: no weight is quantized by a lesser method than the one asked for.
func TestMethodErrors(t *testing.T) {
	const bf16, cols = safetensors.BF16, 64
	shape := []int64{32, cols}
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"l.0.q_proj.weight", bf16, 1, shape}, {"l.0.o_proj.weight", bf16, 2, shape}}}, madeConfig))
	for _, tc := range []struct {
		format     quant.Format
		method     calibration.Method
		statistics *calibration.Statistics
		want       string
	}{
		{quant.NVFP4, calibration.Search, statisticsOf(t, cols, false, "l.0.q_proj"),
			"no input of l.0.o_proj.weight (1 of 2 weights): collect them with this model and a longer text"},
		{quant.NVFP4, calibration.Search, statisticsOf(t, 32, false, "l.0.q_proj", "l.0.o_proj"),
			"it has 64 columns, and the statistics are of an input of 32"},
		{quant.NVFP4, calibration.Solve, statisticsOf(t, cols, false, "l.0.q_proj", "l.0.o_proj"),
			"collect them with calibrate --hessian, or choose --method search"},
		{quant.FP8Row, calibration.Search, statisticsOf(t, cols, false, "l.0.q_proj", "l.0.o_proj"), "supports formats with a scale of one byte"},
	} {
		o := QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format}, Method: tc.method, Statistics: tc.statistics}
		if _, err := PlanQuantize(t.Context(), src.Source, o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// TestMethodFingerprint: a run of another method, or with other statistics, is not resumed.
func TestMethodFingerprint(t *testing.T) {
	const bf16, cols = safetensors.BF16, 64
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"l.0.q_proj.weight", bf16, 1, []int64{32, cols}}}}, madeConfig))
	seen := map[string]bool{}
	s, other := statisticsOf(t, cols, true, "l.0.q_proj"), statisticsOf(t, cols, true, "l.0.q_proj", "l.0.x")
	for _, o := range []QuantizeOptions{{}, {Method: calibration.Search, Statistics: s}, {Method: calibration.Solve, Statistics: s},
		{Method: calibration.Solve, Statistics: other}} {
		o.Quantizer.Format = quant.MXFP4
		o.Quantizer.Search = quant.LeastSquares
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		seen[plan.fingerprint()] = true
	}
	solver++
	t.Cleanup(func() { solver-- })
	for _, o := range []QuantizeOptions{{}, {Method: calibration.Solve, Statistics: s}} {
		o.Quantizer.Format = quant.MXFP4
		o.Quantizer.Search = quant.LeastSquares
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		seen[plan.fingerprint()] = true
	}
	if len(seen) != 5 { // another version of the solver changes that of the method alone
		t.Errorf("%d fingerprints, want 5", len(seen))
	}
}

// TestMoments: an importance matrix has no means.
func TestMoments(t *testing.T) {
	tile, square := checkpoint.Tile{To: 1, FromCol: 1, ToCol: 3}, []float32{1, 2, 3}
	for _, mean := range [][]float32{nil, {4, 5, 6}} {
		squares, means := decision{inputs: []*calibration.Input{{Square: square, Mean: mean}}}.moments(tile)
		if !slices.Equal(squares, square[1:]) || mean != nil && !slices.Equal(means, mean[1:]) || mean == nil && means != nil {
			t.Errorf("got %v and %v of the means %v", squares, means, mean)
		}
	}
}

// TestMethodDamage: one changed code of a calibrated weight, which no bound excludes, is found by its checksum.
func TestMethodDamage(t *testing.T) {
	const bf16, cols = safetensors.BF16, 64
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"l.0.q_proj.weight", bf16, 1, []int64{32, cols}}}}, madeConfig))
	dst := filepath.Join(t.TempDir(), "out")
	quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Method: calibration.Solve,
		Statistics: statisticsOf(t, cols, true, "l.0.q_proj")}, RunOptions{})
	path := filepath.Join(dst, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-40] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Compare(t.Context(), src.Source, openModel(t, dst).Source, verify.Options{})
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Text, "do not match their checksum") {
		t.Errorf("got %v, %v", report.Problems, err)
	}
}

// TestHeldFactors: a factor is made once although several weights need it, with others between them, and tiles of several weights
// are being quantized; it is not held when no weight needs it.
func TestHeldFactors(t *testing.T) {
	const cols = 16
	var inputs []*calibration.Input
	for _, module := range []string{"k", "o", "gate", "down", "next"} {
		in, _ := statisticsOf(t, cols, true, module).Of(module)
		inputs = append(inputs, in)
	}
	k, o, gate, down, next := inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]
	var decisions []decision
	for _, of := range [][]*calibration.Input{{k}, {o}, nil, {k}, {k}, {gate}, {gate}, {down, next, down}} {
		decisions = append(decisions, decision{inputs: of})
	}
	for range heldPlaces {
		decisions = append(decisions, decision{inputs: inputs[4:]})
	}
	f := newFactors(decisions)
	of := func(in *calibration.Input, done, place int) *calibration.Factor {
		t.Helper()
		factor, err := f.of(in, done, place)
		if err != nil {
			t.Fatal(err)
		}
		return factor
	}
	first := of(k, 0, 0)
	for place, in := range []*calibration.Input{k, o, k, k, gate, gate, down, next} { // all tiles are being quantized at once
		if got := of(in, 0, place); in == k && got != first {
			t.Errorf("place %d: the factor was made again", place)
		}
	}
	if of(k, 2, 3) != first || len(f.known) != 4 {
		t.Errorf("%d factors are held, want those of k, gate, down and next", len(f.known))
	}
	if of(next, 8, 9); len(f.known) != 2 {
		t.Errorf("%d factors are held, want those of down and next", len(f.known))
	}
	if of(next, 9, 10); len(f.known) != 1 {
		t.Errorf("%d factors are held, want that of next", len(f.known))
	}
}

// TestStatisticsNotes: dead columns, inputs of another model, and damping above the usual, are reported.
func TestStatisticsNotes(t *testing.T) {
	const bf16, cols = safetensors.BF16, 64
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"l.0.q_proj.weight", bf16, 1, []int64{32, cols}}}}, madeConfig))
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &calibration.Collector{Dir: filepath.Dir(path), Out: path, Hessian: true,
		Layers: [][]calibration.Linear{{{Name: "input", Width: cols, Modules: []string{"l.0.q_proj"}},
			{Name: "other", Width: cols, Modules: []string{"l.1.q_proj"}}}}}
	x := tensor.New(2, cols)
	for i := range x.Data {
		if i%cols > 2 {
			x.Data[i] = float32(i % 5)
		}
	}
	if err := errors.Join(c.Add("input", x), c.Add("other", x), c.Finish(t.Context(), 0), c.Join(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, err := calibration.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
		Method: calibration.Solve, Statistics: s})
	if err != nil {
		t.Fatal(err)
	}
	if seconds, err := plan.MethodSeconds(1); plan.MethodBytes() != 16*cols*cols || err != nil || !(seconds > 0) {
		t.Errorf("the method is predicted to take %d bytes and %g s (%v)", plan.MethodBytes(), seconds, err)
	}
	if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "columns of 1 inputs, the first that of l.0.q_proj, are zero for "+
		"every token") || !strings.Contains(notes, "1 of 2 inputs of the statistics, the first that of l.1.q_proj, are of no "+
		"weight of this model") {
		t.Errorf("got the notes %q", notes)
	}
	r := newRun(plan, RunOptions{})
	r.sums[0].merge(sums{stored: r.sums[0].stored, damping: calibration.DefaultDamping})
	if got := r.dampings(); got != nil {
		t.Errorf("got %q for the usual damping", got)
	}
	r.sums[0].merge(sums{stored: r.sums[0].stored, damping: 1})
	if got := r.dampings(); len(got) != 1 || !strings.Contains(got[0], "method gptq used damping 1 (0.01 is usual) in 1 of 1 weights") {
		t.Errorf("got %q", got)
	}
	if r.sums[0].damping = 0; !r.sums[0].restore(&doneTiles{Sums: stateOf(r.sums[0].stored), Damping: 0.1}) || len(r.dampings()) != 1 {
		t.Error("the damping of an earlier run is forgotten")
	}
}
