package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// The names of the divisors of LongRoPE, for texts up to the original length and for longer ones.
const (
	shortFactors = "rope_factors_short.weight"
	longFactors  = "rope_factors_long.weight"
)

// originalLength is the metadata key of the length in tokens up to which frequencies have the short divisors.
const originalLength = "rope.scaling.original_context_length"

// long adds LongRoPE (Ding et al., 2024): divisors of the frequencies, and a factor of cosines and sines.
func (m *Model) long(r family.Rope) error {
	rotated := m.config.rotated()
	original := r.OriginalLength
	if len(r.ShortFactor) != rotated/2 || len(r.LongFactor) != rotated/2 || !(original > 1) || original > math.MaxInt32 {
		return fmt.Errorf("longrope has %d short and %d long factors and an original length of %g, want %d factors of each: fetch it again",
			len(r.ShortFactor), len(r.LongFactor), original, rotated/2)
	}
	m.set(originalLength, uint32(original))
	r.Factor = cmp.Or(r.Factor, float64(m.config.MaxPositionEmbeddings)/original)
	m.set(attentionFactor, float32(cmp.Or(r.AttentionFactor, r.LongMagnitude())))
	shape := []int64{int64(rotated / 2)}
	m.Extra = append(m.Extra, Constant{gguf.Spec{Name: longFactors, Type: gguf.F32, Shape: shape}, narrow(r.LongFactor)},
		Constant{gguf.Spec{Name: shortFactors, Type: gguf.F32, Shape: shape}, narrow(r.ShortFactor)})
	m.Notes = append(m.Notes, fmt.Sprintf("llama.cpp takes the divisors of LongRoPE for long texts if its context has more than %g "+
		"tokens, and transformers if the text has", original))
	return nil
}

// narrow returns numbers as float32.
func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(x[i])
	}
	return y
}

// longOf sets the LongRoPE of a file in its configuration. ok is false if it has none.
func longOf(f *gguf.File, a architecture, c map[string]any) (ok bool, err error) {
	short, hasShort := f.Lookup(shortFactors)
	long, hasLong := f.Lookup(longFactors)
	if !a.LongRope || !hasShort || !hasLong {
		return false, nil
	}
	r := map[string]any{"rope_type": "longrope"}
	if r["short_factor"], err = readFloats(f, short); err != nil {
		return false, err
	}
	if r["long_factor"], err = readFloats(f, long); err != nil {
		return false, err
	}
	original, positions := float64(f.Count(a.Name+"."+originalLength)), float64(f.Count(a.Name+".context_length"))
	if original > 0 {
		c["original_max_position_embeddings"] = json.Number(fmt.Sprint(original))
	}
	magnitude := family.Rope{Factor: positions / original, OriginalLength: original}.LongMagnitude()
	if x, given := f.Value(a.Name + "." + attentionFactor).(float32); given && x != float32(magnitude) {
		r["attention_factor"] = number(x)
	}
	c["rope_scaling"] = r
	return true, nil
}
