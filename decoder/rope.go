package decoder

import (
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
)

// A RopePlan is the rotary embedding of a layer.
type RopePlan struct {
	Scaling     string    `json:"scaling"` // its name in configurations
	Base        float64   `json:"base"`
	Rotated     int       `json:"rotated"` // elements of a head
	Interleaved bool      `json:"interleaved"`
	Divisors    []float64 `json:"divisors,omitempty"` // of the frequencies
	Long        []float64 `json:"long,omitempty"`     // divisors for more than Short positions
	Short       int       `json:"short,omitempty"`
	Magnitude   float64   `json:"magnitude"`

	scale float64 // factor of the scale of scores
}

// ropeSettings are the parameters of a rotary embedding.
type ropeSettings struct{ family.Rope }

// plan returns the plan of r for heads of the given size and a maximum number of positions.
func (r ropeSettings) plan(head, positions int) (*RopePlan, error) {
	p := &RopePlan{Scaling: r.Type, Base: r.Theta, Rotated: head, Magnitude: 1, scale: 1}
	if r.PartialRotary != 0 {
		p.Rotated = int(float64(head) * r.PartialRotary)
	}
	fail := func(format string, args ...any) (*RopePlan, error) {
		return nil, family.Unsupported(fmt.Errorf("config.json: %s: %w", r.Key, fmt.Errorf(format, args...)))
	}
	if p.Rotated < 2 || p.Rotated > head || p.Rotated%2 != 0 {
		return fail("%d of %d elements of a head are rotated, want an even number", p.Rotated, head)
	}
	if !(p.Base > 0) || math.IsInf(p.Base, 0) {
		return fail("rope_theta is %g, want a positive number", p.Base)
	}
	switch r.Type {
	case "", "default":
		p.Scaling = "default"
		return p, nil
	case "longrope", "su":
		return r.longrope(p, positions)
	case "linear", "llama3", "yarn":
	default:
		return fail("rope_type %q is not supported: want default, linear, llama3, yarn or longrope", r.Type)
	}
	if !(r.Factor > 0) || math.IsInf(r.Factor, 0) {
		return fail("the factor of %q is %g, want a positive number", r.Type, r.Factor)
	}
	switch r.Type {
	case "linear":
		p.Divisors = r.divisors(p, func(int, float64) float64 { return r.Factor })
	case "llama3":
		if !(r.OriginalLength > 0) || !(r.LowFrequency > 0) || !(r.HighFrequency > r.LowFrequency) {
			return fail("llama3 needs original_max_position_embeddings, and low_freq_factor below high_freq_factor")
		}
		p.Divisors = r.divisors(p, func(_ int, wavelength float64) float64 { return r.Llama3Divisor(wavelength) })
	case "yarn":
		if !(r.OriginalLength > 0) {
			return fail("yarn needs original_max_position_embeddings")
		}
		r.yarn(p)
	}
	return p, nil
}

// divisors returns f of each pair and its wavelength.
func (r *ropeSettings) divisors(p *RopePlan, f func(pair int, wavelength float64) float64) []float64 {
	d := make([]float64, p.Rotated/2)
	for i := range d {
		d[i] = f(i, 2*math.Pi*math.Pow(p.Base, float64(2*i)/float64(p.Rotated)))
	}
	return d
}

// yarn sets the plan of YaRN (Peng et al., 2023): pairs with many turns in the original length stay, those
// with few are interpolated, and cosines and sines grow.
func (r *ropeSettings) yarn(p *RopePlan) {
	pair := func(turns float64) float64 { // the pair that makes this number of turns in the original length
		return float64(p.Rotated) * math.Log(r.OriginalLength/(turns*2*math.Pi)) / (2 * math.Log(p.Base))
	}
	low, high := pair(or(r.BetaFast, 32)), pair(or(r.BetaSlow, 1))
	if r.Truncate == nil || *r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(p.Rotated-1))
	if low == high {
		high += 0.001
	}
	p.Divisors = r.divisors(p, func(i int, _ float64) float64 {
		interpolated := max(0, min((float64(i)-low)/(high-low), 1))
		return 1 / (interpolated/r.Factor + 1 - interpolated)
	})
	switch {
	case r.AttentionFactor != 0:
		p.Magnitude = r.AttentionFactor
	case r.MScale != 0 && r.MScaleAllDim != 0:
		p.Magnitude = r.YaRNMagnitude(r.MScale) / r.YaRNMagnitude(r.MScaleAllDim)
	default:
		p.Magnitude = r.YaRNMagnitude(1)
	}
	if r.MScaleAllDim != 0 {
		p.scale = r.YaRNMagnitude(r.MScaleAllDim) * r.YaRNMagnitude(r.MScaleAllDim)
	}
}

// longrope sets the plan of LongRoPE (Ding et al., 2024): stored divisors for short and for long
// sequences.
func (r *ropeSettings) longrope(p *RopePlan, positions int) (*RopePlan, error) {
	if r.OriginalLength == 0 {
		r.OriginalLength = float64(positions)
	}
	fail := func(format string, args ...any) (*RopePlan, error) {
		return nil, fmt.Errorf("config.json: %s: longrope has %w", r.Key, fmt.Errorf(format, args...))
	}
	if len(r.ShortFactor) != p.Rotated/2 || len(r.LongFactor) != p.Rotated/2 {
		return fail("%d short and %d long factors, want %d of each", len(r.ShortFactor), len(r.LongFactor), p.Rotated/2)
	}
	if least := min(slices.Min(r.ShortFactor), slices.Min(r.LongFactor)); !(least > 0) {
		return fail("a factor of %g, want positive numbers", least)
	}
	if !(r.OriginalLength > 1) || r.OriginalLength > math.MaxInt32 {
		return fail("original_max_position_embeddings of %g, want 2 to %d", r.OriginalLength, math.MaxInt32)
	}
	p.Divisors, p.Long, p.Short = r.ShortFactor, r.LongFactor, int(r.OriginalLength)
	r.Factor = or(r.Factor, float64(positions)/r.OriginalLength)
	p.Magnitude = or(r.AttentionFactor, r.LongMagnitude())
	return p, nil
}

// rotary returns the module of the plan.
func (p *RopePlan) rotary(head, positions int) *nn.Rotary {
	if p == nil {
		return nil
	}
	return nn.NewRotary(nn.RotaryConfig{
		HeadDim: head, Rotated: p.Rotated, Positions: positions, Base: p.Base, Interleaved: p.Interleaved,
		Divisors: p.Divisors, LongDivisors: p.Long, Short: p.Short, Magnitude: p.Magnitude,
	})
}
