package nn

import "math"

// exp returns e^x in float32, within 2 ulp, with the same bits on every
// machine. Below -87.3, where the result would be subnormal, it is zero; above
// the largest float32 it is infinite; NaN stays NaN.
//
// With n the integer nearest to x/ln 2 and r = x - n·ln 2, it is 2^n times the
// Taylor polynomial of e^r, whose remainder is below r^8/8! < 2^-27.
func exp(x float32) float32 {
	const (
		log2e = 1 / math.Ln2
		high  = 0x1.62e4p-1 // of ln 2: few enough bits for n·high to be exact
		low   = math.Ln2 - high
		round = 3 << 22 // adding it leaves the nearest integer in the low bits
		least = -87.33654
		most  = 88.72284
	)
	if !(x >= least) {
		if x < least {
			return 0
		}
		return x // NaN
	}
	if x >= most {
		if x > most {
			return float32(math.Inf(1))
		}
	}
	shifted := float32(x*log2e) + round
	n := shifted - round
	r := x - float32(n*high)
	r -= float32(n * low)
	p := float32(r*(1.0/5040)) + 1.0/720
	p = float32(p*r) + 1.0/120
	p = float32(p*r) + 1.0/24
	p = float32(p*r) + 1.0/6
	p = float32(p*r) + 0.5
	p = float32(p*float32(r*r)) + r
	p++
	// n is up to 128: half of it in each of two factors, which are normal numbers.
	k := int32(n)
	half := k >> 1
	return p * math.Float32frombits(uint32(half+127)<<23) * math.Float32frombits(uint32(k-half+127)<<23)
}
