package llamacpp

import (
	"cmp"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// checkSliding returns an error if layers with windows have other rotary embeddings than in llama.cpp, which
// does not scale them.
func (m *Model) checkSliding() error {
	a := m.architecture
	r, err := m.config.Rope(a.family, family.SlidingLayer)
	switch want := cmp.Or(a.class.RopeLocalBase, m.theta()); {
	case err != nil:
		return err
	case !a.family.LocalRope && r.Type == m.config.rope.Type && r.Theta == m.config.rope.Theta:
		return nil // all layers have the same
	case r.Type != "" && r.Type != "default":
		return fmt.Errorf("rope_parameters of layers with windows are of type %q: llama.cpp runs %s without scaling there", r.Type, a.Name)
	case r.Theta != want:
		return fmt.Errorf("rope_theta of layers with windows is %g: llama.cpp runs %s with %g", r.Theta, a.Name, want)
	}
	return nil
}

// defaultTheta is rope_theta of models that do not name it.
const defaultTheta = 10000

// theta returns the base of the frequencies of rotary embeddings.
func (m *Model) theta() float64 { return m.config.rope.Theta }

// rotated returns the elements of a head that are rotated.
func (c config) rotated() int {
	return cmp.Or(c.RotatedDim, int(float64(c.HeadDim)*cmp.Or(c.rope.PartialRotary, 1)))
}

// rotary adds the metadata keys of rotary embeddings.
func (m *Model) rotary() error {
	r := m.config.rope
	m.set("rope.dimension_count", uint32(m.config.rotated()))
	m.set("rope.freq_base", float32(m.theta()))
	kind := r.Type
	switch {
	case kind == "" || kind == "default":
		return nil
	case (kind == "longrope" || kind == "su") && m.architecture.LongRope:
		return m.long(r)
	case r.Factor == 0:
		return fmt.Errorf("rope_scaling of type %q has no factor: fetch it again", kind)
	case kind == "linear":
		m.scaling(kind, r, scalingKeys[:1])
		return nil
	case kind == "llama3":
		m.Extra = append(m.Extra, m.llama3(r))
		return nil
	case kind == "yarn" && (r.Truncate == nil || *r.Truncate) == m.architecture.Unrounded:
		return fmt.Errorf("truncate of rope_scaling is %v, but a GGUF file of %s stands for %v", r.Truncate == nil || *r.Truncate,
			m.architecture.Name, !m.architecture.Unrounded)
	case kind == "yarn" && r.OriginalLength != 0:
		m.scaling(kind, r, scalingKeys)
		return nil
	}
	return fmt.Errorf("rope_scaling of type %q is not supported in GGUF, only linear, llama3 and yarn with original_max_position_embeddings",
		kind)
}

// A scalingKey is a number of the scaling of rotary embeddings.
type scalingKey struct {
	metadata, config string
	integer          bool
	value            func(r family.Rope) float64 // nil: none
}

// scalingKeys are the keys of the metadata after "rope.scaling.", and of rope_scaling. Scaling of type
// linear has the first.
var scalingKeys = []scalingKey{
	{"factor", "factor", false, func(r family.Rope) float64 { return r.Factor }},
	{"original_context_length", "original_max_position_embeddings", true, func(r family.Rope) float64 { return r.OriginalLength }},
	{"attn_factor", "", false, besideYaRN},
	{"yarn_attn_factor", "attention_factor", false, func(r family.Rope) float64 { return r.AttentionFactor }},
	{"yarn_beta_fast", "beta_fast", false, func(r family.Rope) float64 { return r.BetaFast }},
	{"yarn_beta_slow", "beta_slow", false, func(r family.Rope) float64 { return r.BetaSlow }},
}

// scaling adds the metadata keys of rope_scaling.
func (m *Model) scaling(kind string, r family.Rope, rows []scalingKey) {
	m.set("rope.scaling.type", kind)
	for _, row := range rows {
		switch x := row.value(r); {
		case x == 0:
		case row.integer:
			m.set("rope.scaling."+row.metadata, uint32(x))
		default:
			m.set("rope.scaling."+row.metadata, float32(x))
		}
	}
}

// attentionFactor is the metadata key of a factor of cosines and sines. It multiplies that of YaRN.
const attentionFactor = "rope.scaling.attn_factor"

// besideYaRN returns attention_factor by that of YaRN, if they differ: llama.cpp ignores yarn_attn_factor.
func besideYaRN(r family.Rope) float64 {
	if r.AttentionFactor == 0 || r.AttentionFactor == r.YaRNMagnitude(1) {
		return 0
	}
	return r.AttentionFactor / r.YaRNMagnitude(1)
}

// ropeFactors is the name of the tensor that llama3 returns.
const ropeFactors = "rope_freqs.weight"

// llama3 returns the divisors of the frequencies for rope_type llama3 of transformers.
func (m *Model) llama3(r family.Rope) Constant {
	r.LowFrequency, r.HighFrequency = cmp.Or(r.LowFrequency, 1), cmp.Or(r.HighFrequency, 4)
	r.OriginalLength = cmp.Or(r.OriginalLength, 8192)
	base, d := m.theta(), m.config.HeadDim
	values := make([]float32, d/2)
	for i := range values {
		wavelength := 2 * math.Pi * math.Pow(base, float64(2*i)/float64(d))
		values[i] = float32(r.Llama3Divisor(wavelength))
	}
	return Constant{gguf.Spec{Name: ropeFactors, Type: gguf.F32, Shape: []int64{int64(d / 2)}}, values}
}

// llama3Of is the inverse of llama3: it returns the rope_scaling whose divisors, in float32, are the
// given ones; nil if there is none. The divisors determine low_freq_factor, high_freq_factor and
// original_max_position_embeddings up to a common factor. All published models have 1 and 4.
func llama3Of(divisors []float32, theta float32) map[string]any {
	const low, high = 1, 4
	n := len(divisors)
	if n == 0 {
		return nil
	}
	factor := float64(divisors[n-1])
	wavelength := func(i int) float64 { return 2 * math.Pi * math.Pow(float64(theta), float64(i)/float64(n)) }
	least, most, length := 0.0, math.Inf(1), 0.0 // what each wavelength says about the length
	for i, d := range divisors {
		switch w, d := wavelength(i), float64(d); {
		case d == 1:
			least = max(least, w*high)
		case d == factor:
			most = min(most, w*low)
		default:
			length = math.Round(w * (low + (high-low)*(1/d-1/factor)/(1-1/factor)))
		}
	}
	if length == 0 { // no wavelength is between: take a power of two
		length = math.Exp2(math.Ceil(math.Log2(max(1, least))))
	}
	if !(factor > 1) || !(length <= most) || length > math.MaxInt32 {
		return nil
	}
	r := family.Rope{Factor: factor, LowFrequency: low, HighFrequency: high, OriginalLength: length}
	for i, d := range divisors {
		if want := float32(r.Llama3Divisor(wavelength(i))); math.Abs(float64(d-want)) > 1e-6*float64(want) {
			return nil
		}
	}
	return map[string]any{"rope_type": "llama3", "factor": number(factor), "low_freq_factor": number(float64(low)),
		"high_freq_factor": number(float64(high)), "original_max_position_embeddings": length}
}
