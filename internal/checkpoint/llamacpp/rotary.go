package llamacpp

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/gguf"
)

// rope has the parameters of rotary embeddings and of their scaling to contexts beyond the
// training length.
type rope struct {
	Theta           *float64 `json:"rope_theta"`
	Type            string   `json:"rope_type"`
	OldType         string   `json:"type"` // older configurations, in place of rope_type
	Factor          *float64 `json:"factor"`
	LowFrequency    *float64 `json:"low_freq_factor"`
	HighFrequency   *float64 `json:"high_freq_factor"`
	OriginalLength  *float64 `json:"original_max_position_embeddings"`
	AttentionFactor *float64 `json:"attention_factor"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
	Full            *rope    `json:"full_attention"` // if layers with a window have other parameters
}

// rotary adds the metadata keys of rotary embeddings.
func (m *Model) rotary() error {
	r := m.config.RopeParameters
	m.set("rope.dimension_count", uint32(float64(m.config.HeadDim)*value(m.config.PartialRotary, 1)))
	m.set("rope.freq_base", float32(value(r.Theta, 10000)))
	kind := r.Type
	if kind == "" {
		kind = r.OldType
	}
	switch {
	case kind == "" || kind == "default":
		return nil
	case r.Factor == nil:
		return fmt.Errorf("rope_scaling of type %q has no factor: fetch it again", kind)
	case kind == "linear":
		m.set("rope.scaling.type", kind)
		m.set("rope.scaling.factor", float32(*r.Factor))
		return nil
	case kind == "llama3":
		m.Extra = append(m.Extra, m.llama3(r))
		return nil
	case kind == "yarn" && r.OriginalLength != nil:
		m.set("rope.scaling.type", kind)
		m.set("rope.scaling.factor", float32(*r.Factor))
		m.set("rope.scaling.original_context_length", uint32(*r.OriginalLength))
		for _, optional := range []struct {
			key   string
			value *float64
		}{{"attn_factor", r.AttentionFactor}, {"beta_fast", r.BetaFast}, {"beta_slow", r.BetaSlow}} {
			if optional.value != nil {
				m.set("rope.scaling.yarn_"+optional.key, float32(*optional.value))
			}
		}
		return nil
	}
	return fmt.Errorf("rope_scaling of type %q is not supported in GGUF, only linear, llama3 and yarn with original_max_position_embeddings", kind)
}

// ropeFactors is the name of the tensor that llama3 returns.
const ropeFactors = "rope_freqs.weight"

// llama3 returns the divisors of the frequencies for rope_type llama3 of transformers.
func (m *Model) llama3(r *rope) Constant {
	low, high := value(r.LowFrequency, 1), value(r.HighFrequency, 4)
	length, base, d := value(r.OriginalLength, 8192), value(r.Theta, 10000), m.config.HeadDim
	values := make([]float32, d/2)
	for i := range values {
		wavelength := 2 * math.Pi * math.Pow(base, float64(2*i)/float64(d))
		values[i] = float32(Llama3Divisor(wavelength, *r.Factor, low, high, length))
	}
	return Constant{gguf.Spec{Name: ropeFactors, Type: gguf.F32, Shape: []int64{int64(d / 2)}}, values}
}

// Llama3Divisor returns the divisor of the frequency with a wavelength in Llama 3.1: 1 for short
// wavelengths, factor for long ones. Between them, the reciprocal is interpolated linearly in the
// number of waves per training length.
func Llama3Divisor(wavelength, factor, low, high, length float64) float64 {
	switch {
	case wavelength < length/high:
		return 1
	case wavelength > length/low:
		return factor
	}
	smooth := (length/wavelength - low) / (high - low)
	return 1 / ((1-smooth)/factor + smooth)
}

// value returns *p, or otherwise if p is nil.
func value(p *float64, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return *p
}
