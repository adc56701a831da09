package nn

import "math"

// The constants of exp. Adding expRound rounds x/ln 2 to the nearest integer. expHigh has few enough
// bits of ln 2 that its products with these integers are exact.
const (
	expLog2e = 1 / math.Ln2
	expRound = 3 << 22
	expHigh  = 0x1.62e4p-1
	expLow   = math.Ln2 - expHigh
	expC7    = 1.0 / 5040 // coefficients of the Taylor polynomial
	expC6    = 1.0 / 720
	expC5    = 1.0 / 120
	expC4    = 1.0 / 24
	expC3    = 1.0 / 6
	expC2    = 0.5
	expMin   = -87.33654
	expMax   = 88.72284
	expBias  = 127
)

// exp returns e^x within 2 ulp, with the same bits on every machine. It returns zero below -87.3,
// where the result would be subnormal, infinity above the largest float32, and NaN for NaN.
//
// With n the integer nearest to x/ln 2 and r = x - n·ln 2, the result is 2^n times the Taylor
// polynomial of e^r, whose remainder is below r^8/8! < 2^-27.
func exp(x float32) float32 {
	switch {
	case x < expMin:
		return 0
	case x > expMax:
		return float32(math.Inf(1))
	case x != x:
		return x
	}
	shifted := float32(x*expLog2e) + expRound
	n := shifted - expRound
	r := x - float32(n*expHigh)
	r -= float32(n * expLow)
	p := float32(r*expC7) + expC6
	p = float32(p*r) + expC5
	p = float32(p*r) + expC4
	p = float32(p*r) + expC3
	p = float32(p*r) + expC2
	p = float32(p*float32(r*r)) + r
	p++
	// n is up to 128: two factors with half of it each are normal numbers.
	k := int32(n)
	half := k >> 1
	return p * math.Float32frombits(uint32(half+expBias)<<23) * math.Float32frombits(uint32(k-half+expBias)<<23)
}

// sigmoid returns the logistic function of x, 1/(1+e^-x).
func sigmoid(x float32) float32 { return 1 / (1 + exp(-x)) }

// tanh returns the hyperbolic tangent of x within 4 ulp, with the same bits on every machine. Near
// zero, where 1−e^(−2x) loses digits, it is a Taylor polynomial: the next term is below 2^-30.
func tanh(x float32) float32 {
	if x > -tanhTaylor && x < tanhTaylor {
		z := float32(x * x)
		p := float32(z*(-1382.0/155925)) + 62.0/2835
		p = float32(p*z) - 17.0/315
		p = float32(p*z) + 2.0/15
		p = float32(p*z) - 1.0/3
		return x + float32(x*float32(p*z))
	}
	e := exp(-2 * float32(math.Abs(float64(x))))
	return float32(math.Copysign(float64((1-e)/(1+e)), float64(x)))
}

// tanhTaylor is the limit of the polynomial of tanh.
const tanhTaylor = 0.3

// softcap sets each x to limit·tanh(x/limit).
func softcap(x []float32, limit float32) {
	for i, v := range x {
		x[i] = limit * tanh(v/limit)
	}
}

// exps sets each x to e^(x-top).
func exps(x []float32, top float32) {
	done := 0
	if k := rowKernelFor(x); k != nil {
		done = len(x) / k.unit * k.unit
		k.exp(&x[0], len(x)/k.unit, top, &expTable)
	}
	for i, v := range x[done:] {
		x[done+i] = exp(v - top)
	}
}

// sigmoids sets each x to its logistic function.
func sigmoids(x []float32) {
	done := 0
	if k := rowKernelFor(x); k != nil {
		done = len(x) / k.unit * k.unit
		k.sigmoid(&x[0], len(x)/k.unit, &expTable)
	}
	for i, v := range x[done:] {
		x[done+i] = sigmoid(v)
	}
}

// expConstants are the constants of exp in the layout that kernels read.
type expConstants struct {
	log2e, round, high, low     float32
	c7, c6, c5, c4, c3, c2, one float32
	least, most, infinity       float32
	sign, bias                  uint32
}

var expTable = expConstants{
	expLog2e, expRound, expHigh, expLow,
	expC7, expC6, expC5, expC4, expC3, expC2, 1,
	expMin, expMax, float32(math.Inf(1)),
	1 << 31, expBias,
}
