package sampling

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// reference returns the probability of each token by sorting the vocabulary.
func reference(logits []float32, text []int32, o Options) map[int32]float64 {
	ranked := make([]candidate, len(logits))
	for i, l := range logits {
		ranked[i] = candidate{l, int32(i), 1}
		if p := float32(o.RepeatPenalty); p != 0 && slices.Contains(text[max(0, len(text)-64):], int32(i)) {
			if l > 0 {
				ranked[i].logit /= p
			} else {
				ranked[i].logit *= p
			}
		}
	}
	slices.SortStableFunc(ranked, func(a, b candidate) int { return cmp.Compare(b.logit, a.logit) })
	if o.TopK > 0 {
		ranked = ranked[:min(o.TopK, len(ranked))]
	}
	softmax := func(temperature float64) []float64 {
		weights, sum := make([]float64, len(ranked)), 0.0
		for i, c := range ranked {
			weights[i] = math.Exp((float64(c.logit) - float64(ranked[0].logit)) / temperature)
			sum += weights[i]
		}
		for i := range weights {
			weights[i] /= sum
		}
		return weights
	}
	sum := 0.0
	for i, p := range softmax(1) {
		if sum += p; sum >= o.TopP && o.TopP < 1 {
			ranked = ranked[:i+1]
			break
		}
	}
	if o.MinP > 0 {
		p := softmax(1)
		ranked = ranked[:len(slices.DeleteFunc(slices.Clone(p), func(x float64) bool { return x < o.MinP*p[0] }))]
	}
	all := map[int32]float64{}
	for i, p := range softmax(o.Temperature) {
		all[ranked[i].id] = p
	}
	return all
}

func randomLogits(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(math.Round(r.NormFloat64()*24) / 8) // with ties
	}
	return logits
}

// TestFilters checks that the tokens that a sampler can draw, and their weights, are those of a full
// sort, for random options.
func TestFilters(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...float64) float64 { return values[r.IntN(len(values))] }
	for i := range 2000 {
		logits := randomLogits(r, 1+r.IntN(300))
		text := make([]int32, r.IntN(100))
		for i := range text {
			text[i] = int32(r.IntN(len(logits)))
		}
		o := Options{
			Temperature: pick(0.25, 1, 1.7), TopK: int(pick(0, 1, 7, 40)), TopP: pick(0, 0.01, 0.5, 0.913, 1),
			MinP: pick(0, 0.049, 0.3, 1), RepeatPenalty: pick(0, 0.5, 1.3),
		}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(logits, text); err != nil {
			t.Fatal(err)
		}
		want, sum := reference(logits, text, o), 0.0
		for _, c := range s.kept {
			sum += c.weight
		}
		if !slices.IsSortedFunc(s.kept, func(a, b candidate) int { return int(a.id - b.id) }) {
			t.Errorf("case %d, %+v: candidates are not in order of ids", i, o)
		}
		got := map[int32]float64{}
		for _, c := range s.kept {
			got[c.id] = c.weight / sum
		}
		if len(got) != len(want) {
			t.Fatalf("case %d, %+v: %d tokens, want %d", i, o, len(got), len(want))
		}
		for id, p := range want {
			if math.Abs(got[id]-p) > 1e-12 {
				t.Fatalf("case %d, %+v: token %d has probability %g, want %g", i, o, id, got[id], p)
			}
		}
	}
}

// TestDistribution checks by χ² that draws follow the probabilities.
func TestDistribution(t *testing.T) {
	logits := []float32{0.5, -1, 2, 1.25, 2, -3, 0}
	for name, o := range map[string]Options{
		"all":  {Temperature: 1, TopP: 1, Seed: 5},
		"warm": {Temperature: 2.5, TopP: 0.9, Seed: 6},
		"cold": {Temperature: 0.5, TopK: 4, TopP: 1, Seed: 7},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			const draws = 100_000
			counts := map[int32]int{}
			for range draws {
				id, err := s.Next(logits, nil)
				if err != nil {
					t.Fatal(err)
				}
				counts[id]++
			}
			chi, total := 0.0, 0
			want := reference(logits, nil, o)
			for id, p := range want {
				d := float64(counts[id]) - p*draws
				chi += d * d / (p * draws)
				total += counts[id]
			}
			if limit := 22.5; total != draws || chi > limit { // of χ² with 6 degrees of freedom, 1 in 1000 is above
				t.Errorf("χ² is %.1f, want at most %g; %v", chi, limit, counts)
			}
		})
	}
}

// TestGreedy checks temperature 0, ties, and the seed.
func TestGreedy(t *testing.T) {
	draw := func(o Options, n int) (ids []int32) {
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			id, err := s.Next([]float32{1, 3, 3, float32(math.NaN()), 2.9}, []int32{0, 4})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	if got := draw(Options{Seed: 9}, 3); !slices.Equal(got, []int32{1, 1, 1}) {
		t.Errorf("temperature 0: got %v, want the first of the highest logits", got)
	}
	if got := draw(Options{Temperature: 1e-300, TopP: 1}, 50); slices.Contains(got, 4) || slices.Contains(got, 0) {
		t.Errorf("temperature 1e-300: got %v, want tokens of the highest logit only", got)
	}
	if got := draw(Options{RepeatPenalty: 0.5}, 1); got[0] != 4 {
		t.Errorf("penalty 0.5 of tokens 0 and 4: got %v, want 4", got)
	}
	one, other := draw(Options{Temperature: 2, TopP: 1, Seed: 1}, 40), draw(Options{Temperature: 2, TopP: 1, Seed: 2}, 40)
	if slices.Equal(one, other) || !slices.Equal(one, draw(Options{Temperature: 2, TopP: 1, Seed: 1}, 40)) {
		t.Error("draws do not depend on the seed alone")
	}
	if got := draw(Options{Temperature: 5, TopP: 0}, 9); !slices.Equal(got, []int32{1, 1, 1, 1, 1, 1, 1, 1, 1}) {
		t.Errorf("top-p 0: got %v, want the most likely token alone", got)
	}
	if slices.Contains(one, 3) {
		t.Errorf("got %v, with the token whose logit is NaN", one)
	}
}

func TestErrors(t *testing.T) {
	for i, o := range []Options{{Temperature: -1}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {MinP: math.NaN()},
		{RepeatPenalty: -2}, {RepeatPenalty: 1e-45}, {RepeatPenalty: 0.0009}} {
		if _, err := New(o); err == nil {
			t.Errorf("options %d: got no error", i)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, logits := range [][]float32{nil, {nan, nan}, {1, inf}, {-inf, -inf}} {
		s, _ := New(Options{Temperature: 1, TopP: 1})
		if id, err := s.Next(logits, nil); err == nil {
			t.Errorf("%v: got %d", logits, id)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	logits := randomLogits(rand.New(rand.NewPCG(1, 2)), 128_000)
	for _, o := range []Options{{}, {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}, {Temperature: 1, TopP: 0.95}} {
		b.Run(fmt.Sprintf("k=%d/p=%g", o.TopK, o.TopP), func(b *testing.B) {
			s, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := s.Next(logits, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
