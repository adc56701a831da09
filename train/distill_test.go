package train

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// distilling returns a distillation of a random model in NVFP4.
func distilling(t *testing.T, steps int) Distillation {
	t.Helper()
	m, err := decoder.New(decoder.Config{VocabSize: 61, HiddenSize: 32, IntermediateSize: 64, NumHiddenLayers: 1, NumAttentionHeads: 2,
		NumKeyValueHeads: 1, MaxPositionEmbeddings: 16}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() {
		if !strings.Contains(p.Name, "norm") {
			for i := range p.Value.Data {
				p.Value.Data[i] *= 8 // as large as those of a trained model
			}
		}
	}
	q, err := m.Quantize(quant.Quantizer{Format: quant.NVFP4}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := q.Student()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var all [][]int32
	for range 8 {
		w := make([]int32, 16)
		for i := range w {
			w[i] = rng.Int32N(61)
		}
		all = append(all, w)
	}
	// Random tokens have nothing in common: the windows are held out that are trained on.
	return Distillation{Student: s, Original: m, Windows: all[:5], HeldOut: all[:3], Steps: steps, Norms: true, Seed: 7, Threads: 1}
}

// scalesOf returns the scales and the norms of a student.
func scalesOf(s *decoder.Student) (b []byte, rest []float32) {
	for _, l := range s.Layers() {
		b, rest = append(b, l.Weight.Scales...), append(rest, l.Weight.Global)
	}
	for _, p := range s.Norms() {
		rest = append(rest, p.Value.Data...)
	}
	return b, rest
}

// TestDistillation: the divergence falls; a run that is interrupted in every stage and resumed has the result of another, whatever
// its threads; a state that is damaged is not used, and one of another run is an error.
func TestDistillation(t *testing.T) {
	const steps = BlockSteps
	whole := distilling(t, steps)
	start, _ := scalesOf(whole.Student)
	want, err := whole.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	before, after := want.Mean()
	scales, rest := scalesOf(whole.Student)
	if !want.Better() || !(after < 0.95*before) || want.Changed == 0 || want.Steps != steps || bytes.Equal(scales, start) {
		t.Fatalf("KL %g, then %g; %d of %d scales changed", before, after, want.Changed, want.Scales)
	}
	state := filepath.Join(t.TempDir(), "state")
	check := func(d Distillation, got *Distilled) {
		t.Helper()
		s, r := scalesOf(d.Student)
		got.Seconds = want.Seconds
		if !reflect.DeepEqual(got, want) || !bytes.Equal(s, scales) || !reflect.DeepEqual(r, rest) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for stop := 1; ; stop += 13 { // windows until the run is interrupted
		ctx, cancel := context.WithCancel(context.Background())
		d := distilling(t, steps)
		d.State, d.Key, d.Threads = state, "key", 3
		done := 0
		d.Progress = func(Distilled) {
			if done++; done == stop {
				cancel()
			}
		}
		got, err := d.Run(ctx)
		cancel()
		if err == nil {
			check(d, got)
			break
		}
		if !errors.Is(err, context.Canceled) || stop > 100 {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(state, data, 0o600); err != nil {
		t.Fatal(err)
	}
	d := distilling(t, steps)
	d.State, d.Key = state, "another"
	_, err = d.Run(context.Background())
	if other, ok := errors.AsType[*OtherRunError](err); !ok || other.Key != "key" || other.State != state {
		t.Errorf("of another run: got %v", err)
	}
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the state of another run changed (%v)", err)
	}
	d.Key = "key"
	got, err := d.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	check(d, got)
}

// TestDistillationKeeps: scales that do not improve the windows that are held out are those of the start.
func TestDistillationKeeps(t *testing.T) {
	kept := false
	for token := int32(0); token < 61 && !kept; token++ { // of a few tokens, some get worse
		d := distilling(t, 5)
		start, rest := scalesOf(d.Student)
		d.HeldOut = [][]int32{{token}}
		got, err := d.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		s, r := scalesOf(d.Student)
		kept = bytes.Equal(s, start) && reflect.DeepEqual(r, rest)
		if kept == got.Better() || kept == (got.After[0] < got.Before[0]) || kept && got.Changed != 0 {
			t.Errorf("KL %g, then %g: the scales of the start are kept: %v", got.Before[0], got.After[0], kept)
		}
	}
	if !kept {
		t.Error("every run improved its window")
	}
	if got, err := distilling(t, BlockSteps-1).Run(context.Background()); err != nil || !got.Better() || got.Changed != 0 {
		t.Errorf("few steps: got %+v, %v, want block scales as they were", got, err)
	}
	if _, err := distilling(t, 0).Run(context.Background()); err == nil {
		t.Error("no steps: got no error")
	}
}

// TestScaled: codes of scaled scales.
func TestScaled(t *testing.T) {
	for _, tc := range []struct {
		f          *format.Scalar
		code, want byte
		x          float32
	}{
		{format.E4M3, 0x38, 0x38, 0},
		{format.E4M3, 0x38, 0x38, 0.06},  // 1, whose next is 1.125
		{format.E4M3, 0x38, 0x39, 0.061}, // beyond the midpoint
		{format.E4M3, 0x38, 0x37, -0.033},
		{format.E4M3, 0x38, 0x3c, 9},    // at most 1.5 times
		{format.E4M3, 0x7e, 0x7e, 0.4},  // the largest
		{format.E4M3, 0x01, 0x01, -0.4}, // the smallest
		{format.E4M3, 0x00, 0x00, 0.4},
		{format.E4M3, 0x7f, 0x7f, 0.4}, // NaN
		{format.E8M0, 127, 127, 0.4},   // powers of two: half a spacing is 1.5
		{format.E8M0, 127, 126, -0.3},
	} {
		if got := scaled(tc.f, tc.code, tc.x); got != tc.want {
			t.Errorf("%s: %#x by e^%g: got %#x, want %#x", tc.f, tc.code, tc.x, got, tc.want)
		}
	}
}
