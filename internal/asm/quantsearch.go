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
	k := searchKernel{fn, s, src, weights, fn.GP("elements")}
	t, left := fn.GP("constants"), fn.GP("groups left")
	for i, v := range []Vec{searchLimit, searchLeast, searchAnchor} {
		fn.I("VPBROADCASTD", c.At(searchNames[i]), v)
	}
	broadcast(fn, 0x7fffffff, t, searchAbs)
	broadcast(fn, 0x7f800000, t, searchBinade)

	few := []Label{fn.NewLabel("one"), fn.NewLabel("two")}
	for i, label := range few {
		fn.I("CMPQ", groups, i+1)
		fn.Jump("JEQ", label)
	}
	next := func(candidate Label) {
		k.join(errors)
		fn.I("ADDQ", 8, errors)
		fn.I("ADDQ", 4, factors)
		fn.I("ADDQ", 4, decodes)
		fn.I("SUBQ", 1, n)
		fn.Jump("JNZ", candidate)
		fn.Return()
	}
	begin := func(name string) Label {
		candidate := fn.Label(name)
		fn.I("VBROADCASTSS", factors.At(0), searchFactor)
		fn.I("VBROADCASTSS", decodes.At(0), searchDecode)
		return candidate
	}

	candidate := begin("candidate")
	fn.I("VPXORQ", searchSum, searchSum, searchSum)
	fn.I("MOVQ", src, k.x)
	fn.I("MOVQ", groups, left)
	group := fn.Label("group")
	elements := searchElements{Z(0), [2]Vec{Z(3), Z(4)}, [2]Vec{Z(5), Z(6)}}
	k.load(elements, 0)
	k.add(elements, false)
	fn.I("ADDQ", 64, k.x)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", group)
	next(candidate)

	// Elements and weights of one or two groups are converted once for all candidates.
	for i, label := range few {
		fn.Place(label)
		fn.I("MOVQ", src, k.x)
		held := []searchElements{{Z(3), [2]Vec{Z(4), Z(5)}, [2]Vec{Z(6), Z(7)}}, {Z(11), [2]Vec{Z(12), Z(13)}, [2]Vec{Z(14), Z(15)}}}[:i+1]
		for g, e := range held {
			k.load(e, 64*g)
		}
		candidate := begin("held")
		for g, e := range held {
			k.add(e, g == 0)
		}
		next(candidate)
	}
}

// Registers of the kernels of a scale search.
var searchLimit, searchLeast, searchAnchor, searchAbs, searchBinade, searchFactor, searchDecode, searchSum = Z(16), Z(17), Z(18), Z(19),
	Z(20), Z(21), Z(22), Z(10)

// A searchKernel writes parts of a kernel.
type searchKernel struct {
	*Func
	searchRow
	src, weights, x Reg // x is the address of the elements, weights less src that of their weights
}

// searchElements are registers of a group: magnitudes in FP32, and in FP64 by halves; weights by halves.
type searchElements struct {
	abs           Vec
	wide, weights [2]Vec
}

// load reads the group at an offset from x.
func (k searchKernel) load(e searchElements, offset int) {
	k.I("VPANDD", k.x.At(offset), searchAbs, e.abs)
	k.I("VEXTRACTF64X4", 1, e.abs, e.wide[1].Y())
	k.I("VCVTPS2PD", e.abs.Y(), e.wide[0])
	k.I("VCVTPS2PD", e.wide[1].Y(), e.wide[1])
	for i, w := range e.weights {
		if k.weighted {
			k.I("VCVTPS2PD", k.weights.At(offset+32*i).By(k.x, 1), w)
		}
	}
}

// add adds the errors of a group to the sum, or begins it with them.
func (k searchKernel) add(e searchElements, first bool) {
	k.I(k.operation, searchFactor, e.abs, Z(1))
	k.I("VMINPS", searchLimit, Z(1), Z(1))
	k.I("VMAXPS", searchLeast, Z(1), Z(2))
	k.I("VPANDD", searchBinade, Z(2), Z(2))
	k.I("VMULPS", searchAnchor, Z(2), Z(2)) // what rounds to a step of the binade
	k.I("VADDPS", Z(2), Z(1), Z(1))
	k.I("VSUBPS", Z(2), Z(1), Z(1))
	k.I("VMULPS", searchDecode, Z(1), Z(1))
	k.I("VEXTRACTF64X4", 1, Z(1), Y(2))
	for i, values := range []Vec{Z(1), Z(2)} {
		d := Z(8 + i)
		k.I("VCVTPS2PD", values.Y(), d)
		k.I("VSUBPD", e.wide[i], d, d)
		k.I("VMULPD", d, d, d)
		if k.weighted {
			k.I("VMULPD", e.weights[i], d, d)
		}
		switch {
		case !first:
			k.I("VADDPD", d, searchSum, searchSum)
		case i == 1:
			k.I("VADDPD", Z(8), Z(9), searchSum) // as onto zero: errors are not negative
		}
	}
}

// join stores the sum of the eight sums.
func (k searchKernel) join(errors Reg) {
	k.I("VEXTRACTF64X4", 1, searchSum, Y(1))
	k.I("VADDPD", Y(1), searchSum.Y(), Y(1))
	k.I("VEXTRACTF128", 1, Y(1), X(2))
	k.I("VADDPD", X(2), X(1), X(1))
	k.I("VPERMILPD", 1, X(1), X(2))
	k.I("VADDSD", X(2), X(1), X(1))
	k.I("VMOVSD", X(1), errors.At(0))
}
