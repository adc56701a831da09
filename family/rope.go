package family

import "math"

// YaRNMagnitude returns the factor of cosines and sines in YaRN (Peng et al., 2023) for an extension by r.Factor. scale is 1, or
// DeepSeek's mscale.
func (r Rope) YaRNMagnitude(scale float64) float64 {
	return 0.1*scale*math.Log(max(1, r.Factor)) + 1
}

// LongMagnitude returns the factor of cosines and sines of LongRoPE (Ding et al., 2024) for an extension by r.Factor from
// r.OriginalLength tokens.
func (r Rope) LongMagnitude() float64 {
	if r.Factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(r.Factor)/math.Log(r.OriginalLength))
}

// Llama3Divisor returns the divisor of the frequency with a wavelength in Llama 3.1: 1 for short wavelengths, r.Factor for long ones.
// Between them, the reciprocal is interpolated linearly in the number of waves per training length.
func (r Rope) Llama3Divisor(wavelength float64) float64 {
	switch {
	case wavelength < r.OriginalLength/r.HighFrequency:
		return 1
	case wavelength > r.OriginalLength/r.LowFrequency:
		return r.Factor
	}
	smooth := (r.OriginalLength/wavelength - r.LowFrequency) / (r.HighFrequency - r.LowFrequency)
	return 1 / ((1-smooth)/r.Factor + smooth)
}
