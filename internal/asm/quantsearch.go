package asm

import "fmt"

// searchNames are the constants of quant's searchConstants.
var searchNames = []string{"limit", "least", "anchor"}

// quantSearch writes the kernels that find the error of a block under several
// scales.
func quantSearch() *File {
	f := NewFile("quant", "search")
	for _, s := range searchRows {
		s.write(f)
	}
	return f
}

// A searchRow is a kernel of a scale search.
type searchRow struct {
	name      string
	operation string // on an element and its factor
	does      string
	weighted  bool // each squared error is multiplied by the weight of its element
}

var searchRows = []searchRow{
	{"searchTimes", "VMULPS", "times factors[k]", false},
	{"searchOver", "VDIVPS", "divided by factors[k]", false},
	{"searchTimesWeighted", "VMULPS", "times factors[k]", true},
	{"searchOverWeighted", "VDIVPS", "divided by factors[k]", true},
}

// signature returns the parameters of the Go function.
func (s searchRow) signature() string {
	if s.weighted {
		return "errors *float64, src, weights *float32, groups int, factors, decodes *float32, n int, c *searchConstants"
	}
	return "errors *float64, src *float32, groups int, factors, decodes *float32, n int, c *searchConstants"
}

// term describes what is summed.
func (s searchRow) term() string {
	if s.weighted {
		return "weight·(decodes[k]·q-x)²"
	}
	return "(decodes[k]·q-x)²"
}

func (s searchRow) write(f *File) {
	fn := f.Func(s.name, fmt.Sprintf(`%s sets errors[k], k < n, to the sum of %s over 16·groups
elements x of src, q the element's rounding of x %s: of eight sums by
position, joined by halves. groups and n are positive, and src is finite.`, s.name, s.term(), s.does), s.signature())
	errors, src, groups := fn.Arg("errors"), fn.Arg("src"), fn.Arg("groups")
	var weights Reg // less src
	if s.weighted {
		weights = fn.Arg("weights")
		fn.I("SUBQ", src, weights)
	}
	factors, decodes, n := fn.Arg("factors"), fn.Arg("decodes"), fn.Arg("n")
	c := constants{fn.Arg("c"), searchNames}
	t, x, left := fn.GP("constants"), fn.GP("elements"), fn.GP("groups left")
	zLimit, zLeast, zAnchor, zAbs, zBinade, zFactor, zDecode := Z(16), Z(17), Z(18), Z(19), Z(20), Z(21), Z(22)
	for i, v := range []Vec{zLimit, zLeast, zAnchor} {
		fn.I("VPBROADCASTD", c.At(searchNames[i]), v)
	}
	broadcast(fn, 0x7fffffff, t, zAbs)
	broadcast(fn, 0x7f800000, t, zBinade)

	candidate := fn.Label("candidate")
	sum := Z(10)
	fn.I("VBROADCASTSS", factors.At(0), zFactor)
	fn.I("VBROADCASTSS", decodes.At(0), zDecode)
	fn.I("VPXORQ", sum, sum, sum)
	fn.I("MOVQ", src, x)
	fn.I("MOVQ", groups, left)

	group := fn.Label("group")
	fn.I("VPANDD", x.At(0), zAbs, Z(0))
	fn.I(s.operation, zFactor, Z(0), Z(1))
	fn.I("VMINPS", zLimit, Z(1), Z(1))
	fn.I("VMAXPS", zLeast, Z(1), Z(2))
	fn.I("VPANDD", zBinade, Z(2), Z(2))
	fn.I("VMULPS", zAnchor, Z(2), Z(2)) // what rounds to a step of the binade
	fn.I("VADDPS", Z(2), Z(1), Z(1))
	fn.I("VSUBPS", Z(2), Z(1), Z(1))
	fn.I("VMULPS", zDecode, Z(1), Z(1))
	fn.I("VEXTRACTF64X4", 1, Z(0), Y(3))
	fn.I("VEXTRACTF64X4", 1, Z(1), Y(4))
	for i, pair := range [][2]Vec{{Z(0), Z(1)}, {Z(3), Z(4)}} {
		fn.I("VCVTPS2PD", pair[0].Y(), Z(5))
		fn.I("VCVTPS2PD", pair[1].Y(), Z(6))
		fn.I("VSUBPD", Z(5), Z(6), Z(6))
		fn.I("VMULPD", Z(6), Z(6), Z(6))
		if s.weighted {
			fn.I("VCVTPS2PD", weights.At(32*i).By(x, 1), Z(5))
			fn.I("VMULPD", Z(5), Z(6), Z(6))
		}
		fn.I("VADDPD", Z(6), sum, sum)
	}
	fn.I("ADDQ", 64, x)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", group)

	fn.I("VEXTRACTF64X4", 1, sum, Y(5))
	fn.I("VADDPD", Y(5), sum.Y(), Y(5))
	fn.I("VEXTRACTF128", 1, Y(5), X(6))
	fn.I("VADDPD", X(6), X(5), X(5))
	fn.I("VPERMILPD", 1, X(5), X(6))
	fn.I("VADDSD", X(6), X(5), X(5))
	fn.I("VMOVSD", X(5), errors.At(0))
	fn.I("ADDQ", 8, errors)
	fn.I("ADDQ", 4, factors)
	fn.I("ADDQ", 4, decodes)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", candidate)
	fn.Return()
}
