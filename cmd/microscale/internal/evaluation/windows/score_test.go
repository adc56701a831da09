package windows

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// headOf returns the Head of a matrix of logits.
func headOf(logits tensor.Dense) Head {
	return func(from, to int) (tensor.Dense, error) { return logits.View(0, logits.Rows, from, to), nil }
}

// logProbabilities is the reference: two passes over all logits.
func logProbabilities(logits []float32) []float64 {
	largest := math.Inf(-1)
	for _, v := range logits {
		largest = max(largest, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - largest)
	}
	out := make([]float64, len(logits))
	for i, v := range logits {
		out[i] = float64(v) - largest - math.Log(sum)
	}
	return out
}

func argmax(logits []float32) (top int) {
	for i, v := range logits {
		if v > logits[top] {
			top = i
		}
	}
	return top
}

// TestCompare compares the sums over blocks with the definitions. The logits grow with the token,
// so that the running maximum moves in every block, and some are −Inf.
func TestCompare(t *testing.T) {
	const tokens, vocabulary = 24, 2*blockSize + 77
	r := rand.New(rand.NewPCG(1, 1))
	original, model := tensor.New(tokens, vocabulary), tensor.New(tokens, vocabulary)
	targets := make([]int32, tokens)
	for i := range tokens {
		for j := range vocabulary {
			rise := float64(j) * float64(i%5) / 700
			v := 3*r.NormFloat64() + rise
			original.Set(i, j, float32(v))
			model.Set(i, j, float32(v+0.3*r.NormFloat64()))
		}
		original.Set(i, 5, float32(math.Inf(-1)))
		model.Set(i, 5, float32(math.Inf(-1)))
		targets[i] = int32(r.IntN(vocabulary-6) + 6)
	}
	c, self, alone := &Comparison{}, &Comparison{}, &Scores{}
	s := scorer{vocabulary, 3}
	if err := s.compare([]*Comparison{c, self}, headOf(original), []Head{headOf(model), headOf(original)}, targets); err != nil {
		t.Fatal(err)
	}
	if err := s.score(alone, headOf(model), targets); err != nil {
		t.Fatal(err)
	}
	sameTops := 0
	for i := range tokens {
		p, q := logProbabilities(original.Row(i)), logProbabilities(model.Row(i))
		kl := 0.0
		for j := range p {
			if !math.IsInf(p[j], -1) {
				kl += math.Exp(p[j]) * (p[j] - q[j])
			}
		}
		near(t, "KL", c.KL[i], kl)
		near(t, "loss of the original", c.Original.NLL[i], -p[targets[i]])
		near(t, "loss of the model", c.Model.NLL[i], -q[targets[i]])
		if alone.NLL[i] != c.Model.NLL[i] {
			t.Errorf("token %d: %v alone, %v beside the original", i, alone.NLL[i], c.Model.NLL[i])
		}
		if want := argmax(original.Row(i)) == argmax(model.Row(i)); c.SameTop[i] != want {
			t.Errorf("token %d: same top %v, want %v", i, c.SameTop[i], want)
		} else if want {
			sameTops++
		}
		if self.KL[i] != 0 || !self.SameTop[i] || self.Model.NLL[i] != self.Original.NLL[i] {
			t.Errorf("token %d: the divergence of a model from itself is %g", i, self.KL[i])
		}
	}
	if sameTops == 0 || sameTops == tokens {
		t.Errorf("%d of %d tops are the same: the test shows nothing", sameTops, tokens)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-12*max(1, math.Abs(want))) {
		t.Errorf("%s: got %.17g, want %.17g", what, got, want)
	}
}

// TestDivergence compares a summary with values computed in Python from the definitions: mean, √(variance/(n−1)),
// and percentiles by linear interpolation.
func TestDivergence(t *testing.T) {
	c := &Comparison{
		Original: Scores{NLL: []float64{1, 2, 0.5, 3, 0.25}},
		Model:    Scores{NLL: []float64{1.25, 1.75, 0.75, 4, 0.25}},
		KL:       []float64{0.01, 0.5, 0.02, 0.1, 0.04},
		SameTop:  []bool{true, false, true, true, false},
	}
	d := c.Divergence()
	for _, v := range []struct {
		name      string
		got, want float64
	}{
		{"nll", d.Original.NLL.Value, 1.35}, {"nll error", d.Original.NLL.Error, 0.5099019513592785},
		{"perplexity", d.Original.Perplexity.Value, 3.857425530696974}, {"perplexity error", d.Original.Perplexity.Error, 1.9669088053254877},
		{"KL", d.KL.Value, 0.134}, {"KL error", d.KL.Error, 0.09282241108697835},
		{"median", d.KL.At(0.5), 0.04}, {"p90", d.KL.At(0.9), 0.34}, {"p95", d.KL.At(0.95), 0.42}, {"p99", d.KL.At(0.99), 0.484},
		{"max", d.KL.At(1), 0.5}, {"min", d.KL.At(0), 0.01},
		{"same top", d.SameTop.Value, 0.6}, {"same top error", d.SameTop.Error, math.Sqrt(0.6 * 0.4 / 4)},
		{"Δp", d.DeltaP.Value, -0.04171430410963366}, {"Δp RMS", d.DeltaP.RMS(), 0.07360682279350071},
		{"ratio", d.LnRatio.Value, 0.25}, {"ratio error", d.LnRatio.Error, 0.2091650066335189},
	} {
		near(t, v.name, v.got, v.want)
	}
}

// TestBitsPerByte checks the units: one bit for each of 10 tokens is a quarter of a bit for each of 40 bytes.
func TestBitsPerByte(t *testing.T) {
	near(t, "bits per byte", BitsPerByte(math.Ln2, 10, 40), 0.25)
}

// TestNoLikelihood checks that a right token without a likelihood is an error that names its place.
func TestNoLikelihood(t *testing.T) {
	for name, v := range map[string]float64{"NaN": math.NaN(), "−Inf": math.Inf(-1)} {
		logits := tensor.Of(2, 3, []float32{1, 2, 3, 1, float32(v), 3})
		err := scorer{3, 1}.score(&Scores{}, headOf(logits), []int32{1, 1})
		if err == nil || !strings.Contains(err.Error(), "scored token 1 of the window are NaN or infinite") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestTop checks the index of the largest logit: the first of equal ones, across blocks.
func TestTop(t *testing.T) {
	s := newSoftmax()
	s.add(0, []float32{1, 3, 3}, 0)
	s.add(3, []float32{3, 2}, 0)
	if s.top != 1 {
		t.Errorf("got %d, want 1", s.top)
	}
	s.add(5, []float32{2, 4}, 0)
	if s.top != 6 {
		t.Errorf("got %d, want 6", s.top)
	}
}

// TestNoError checks that equal matrices have no error, even of zeros, and that other values than zeros have an infinite
// one.
func TestNoError(t *testing.T) {
	var e Error
	e.add(tensor.New(2, 2), tensor.New(2, 2), 1)
	if got := e.Relative(); got != 0 {
		t.Errorf("got %g, want 0", got)
	}
	if got := (Error{Distance: 1}).Relative(); !math.IsInf(got, 1) {
		t.Errorf("an error of zeros: got %g, want +Inf", got)
	}
}

// TestSoftmaxBlocks: a token belongs to the block that begins with it, not to the one before.
func TestSoftmaxBlocks(t *testing.T) {
	s := newSoftmax()
	s.add(0, []float32{1, 2}, 2)
	if !math.IsNaN(s.right) {
		t.Errorf("the logit %g is not in the block", s.right)
	}
	s.add(2, []float32{3, 4}, 2)
	if want := math.Log(math.Exp(-3) + math.Exp(-2) + math.Exp(-1) + 1); s.right != 3 || s.max != 4 || s.top != 3 ||
		math.Abs(math.Log(s.sum)-want) > 1e-12 {
		t.Errorf("got %+v", s)
	}
}

// TestErrorFinite: sums of which one is infinite or NaN are not finite.
func TestErrorFinite(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for e, want := range map[Error]bool{{1, 2}: true, {0, 0}: true, {inf, 1}: false, {1, inf}: false, {inf, inf}: false, {nan, 1}: false,
		{1, nan}: false} {
		if e.finite() != want {
			t.Errorf("%v: finite %v", e, !want)
		}
	}
}
