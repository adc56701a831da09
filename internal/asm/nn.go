package asm

import "fmt"

// NN writes the kernels of package nn: functions of each element of a row, with the bits of
// their Go twins.
func NN() []*File {
	f := NewFile("nn", "rows")
	for _, vec := range []func(int) Vec{Z, Y} {
		writeRound(f, vec)
		writeExp(f, vec, false)
		writeExp(f, vec, true)
		writeLargest(f, vec)
	}
	return append(nnNEON(), f, nnAttention())
}

// widthName returns the name of a kernel with the width of its vectors.
func widthName(name string, v Vec) string {
	return name + map[byte]string{'Y': "256", 'Z': "512"}[v.width]
}

// bytes returns the size of a vector register.
func (v Vec) bytes() int { return map[byte]int{'X': 16, 'Y': 32, 'Z': 64}[v.width] }

// A rowKernel is a kernel that changes a row in place, one vector at a time.
type rowKernel struct {
	*Func
	vec  func(int) Vec
	x, n Reg
	loop Label
}

func newRowKernel(f *File, vec func(int) Vec, name, doc, params string) *rowKernel {
	name = widthName(name, vec(0))
	l := &rowKernel{Func: f.Func(name, fmt.Sprintf("%s %s\nn is the vectors of %d elements, at least one.", name, doc, vec(0).bytes()/4),
		params), vec: vec}
	l.x, l.n = l.Arg("x"), l.Arg("n")
	return l
}

// begin prints the head of the loop, after the constants.
func (l *rowKernel) begin() { l.loop = l.Label("loop") }

// next prints the end of the loop, which advances to the next vector.
func (l *rowKernel) next() {
	l.I("ADDQ", l.vec(0).bytes(), l.x)
	l.I("SUBQ", 1, l.n)
	l.Jump("JNZ", l.loop)
}

// end prints the end of the loop and of the function.
func (l *rowKernel) end() {
	l.next()
	l.Return()
}

// choose sets dst to other in the lanes where a compares to b. AVX2, without masks, uses the
// vector as scratch.
func (l *rowKernel) choose(predicate int, b, a, other, dst, scratch Vec) {
	if dst.width == 'Z' {
		l.I("VCMPPS", predicate, b, a, K(1))
		l.I("VMOVAPS", other, K(1), dst)
		return
	}
	l.I("VCMPPS", predicate, b, a, scratch)
	l.I("VBLENDVPS", scratch, other, dst, dst)
}

// writeRound writes the rounding to BF16, to nearest even, by an addition to the bits.
func writeRound(f *File, vec func(int) Vec) {
	l := newRowKernel(f, vec, "round", "rounds float32 to BF16, in place.", "x *float32, n int")
	x, sum, scratch, nan := vec(0), vec(1), vec(2), vec(3)
	upper, half, one, quiet := vec(4), vec(5), vec(6), vec(7)
	t := l.GP("scratch")
	broadcast(l.Func, 0xffff0000, t, upper)
	broadcast(l.Func, 0x7fff, t, half)
	broadcast(l.Func, 1, t, one)
	broadcast(l.Func, 1<<22, t, quiet)
	and, or := "VPAND", "VPOR"
	if x.width == 'Z' {
		and, or = "VPANDD", "VPORD"
	}
	l.begin()
	l.I("VMOVUPS", l.x.At(0), x)
	l.roundToBF16(x, sum, half, one)
	l.I(or, quiet, x, nan)
	l.choose(unordered, x, x, nan, sum, scratch)
	l.I(and, upper, sum, sum)
	l.I("VMOVUPS", sum, l.x.At(0))
	l.end()
}

// expNames are nn.expConstants.
var expNames = []string{"log2e", "round", "high", "low", "c7", "c6", "c5", "c4", "c3", "c2", "one", "least", "most", "infinity", "sign",
	"bias"}

// writeExp writes e^(x-top), or the logistic function 1/(1+e^-x), by the steps of exp in
// package nn.
func writeExp(f *File, vec func(int) Vec, sigmoid bool) {
	var l *rowKernel
	if sigmoid {
		l = newRowKernel(f, vec, "sigmoid", "sets x to 1/(1+e^-x), in place.", "x *float32, n int, c *expConstants")
	} else {
		l = newRowKernel(f, vec, "exp", "sets x to e^(x-top), in place.", "x *float32, n int, top float32, c *expConstants")
	}
	e := expKernel{rowKernel: l, vec: vec, c: constants{l.Arg("c"), expNames}}
	x, t, p := vec(0), vec(1), vec(4)
	l.Note(x, "x")
	l.Note(vec(3), "x - n·ln 2")
	l.Note(p, "the polynomial, then the result")
	e.keep()
	top := vec(6)
	if !sigmoid {
		l.I("VBROADCASTSS", l.FP("top"), top)
	}
	l.begin()
	l.I("VMOVUPS", l.x.At(0), x)
	if sigmoid {
		l.I("VXORPS", e.constant("sign", t), x, x)
	} else {
		l.I("VSUBPS", top, x, x)
	}
	e.exp()
	if sigmoid {
		one := e.constant("one", t)
		l.I("VADDPS", one, p, p)
		l.I("VDIVPS", p, one, p)
	}
	l.I("VMOVUPS", p, l.x.At(0))
	l.end()
}

// An expKernel is a rowKernel with the constants of exp.
type expKernel struct {
	*rowKernel
	vec  func(int) Vec
	c    constants
	kept map[string]Vec
}

// keep loads constants into the registers from 7 on, as many as there are.
func (e *expKernel) keep() {
	registers := 16
	if e.vec(0).width == 'Z' {
		registers = 32
	}
	e.kept = map[string]Vec{}
	for i, name := range expNames[:min(len(expNames), registers-7)] {
		e.I("VBROADCASTSS", e.c.At(name), e.vec(7+i))
		e.kept[name] = e.vec(7 + i)
	}
}

// constant returns the register of a constant: scratch, to which it loads it, unless it is kept.
func (e *expKernel) constant(name string, scratch Vec) Vec {
	if v, ok := e.kept[name]; ok {
		return v
	}
	e.I("VBROADCASTSS", e.c.At(name), scratch)
	return scratch
}

// exp sets register 4 to e^x of register 0. It changes those up to 5, but not x.
func (e *expKernel) exp() {
	x, t, n, r, p, k := e.vec(0), e.vec(1), e.vec(2), e.vec(3), e.vec(4), e.vec(5)
	e.I("VMULPS", e.constant("log2e", t), x, n)
	e.I("VADDPS", e.constant("round", t), n, n)
	e.I("VSUBPS", e.constant("round", t), n, n)
	e.I("VMULPS", e.constant("high", t), n, t)
	e.I("VSUBPS", t, x, r)
	e.I("VMULPS", e.constant("low", t), n, t)
	e.I("VSUBPS", t, r, r)
	e.I("VMULPS", e.constant("c7", t), r, p)
	for _, name := range []string{"c6", "c5", "c4", "c3"} {
		e.I("VADDPS", e.constant(name, t), p, p)
		e.I("VMULPS", r, p, p)
	}
	e.I("VADDPS", e.constant("c2", t), p, p)
	e.I("VMULPS", r, r, t)
	e.I("VMULPS", t, p, p)
	e.I("VADDPS", r, p, p)
	e.I("VADDPS", e.constant("one", t), p, p)
	e.I("VCVTTPS2DQ", n, n)
	e.I("VPSRAD", 1, n, k)
	e.I("VPSUBD", k, n, n)
	for _, exponent := range []Vec{k, n} {
		e.I("VPADDD", e.constant("bias", t), exponent, exponent)
		e.I("VPSLLD", 23, exponent, exponent)
		e.I("VMULPS", exponent, p, p)
	}
	e.choose(greaterThan, e.constant("most", t), x, e.constant("infinity", n), p, k)
	e.I("VXORPS", n, n, n)
	e.choose(lessThan, e.constant("least", t), x, n, p, k)
	e.choose(unordered, x, x, x, p, k)
}

// writeLargest writes the largest element of a row that is not NaN.
func writeLargest(f *File, vec func(int) Vec) {
	l := newRowKernel(f, vec, "largest", "returns the largest element that is not NaN, or -Inf.", "x *float32, n int) (top float32")
	x, top := vec(0), vec(1)
	broadcast(l.Func, 0xff800000, l.GP("scratch"), top)
	l.begin()
	l.I("VMOVUPS", l.x.At(0), x)
	l.I("VMAXPS", top, x, top) // the first operand if the other is NaN
	l.next()
	if top.width == 'Z' {
		l.I("VEXTRACTF64X4", 1, top, x.Y())
		l.I("VMAXPS", x.Y(), top.Y(), top.Y())
	}
	l.I("VEXTRACTF128", 1, top.Y(), x.X())
	l.I("VMAXPS", x.X(), top.X(), top.X())
	for _, swap := range []int{0x4e, 0xb1} {
		l.I("VPERMILPS", swap, top.X(), x.X())
		l.I("VMAXPS", x.X(), top.X(), top.X())
	}
	l.I("VMOVSS", top.X(), l.FP("top"))
	l.Return()
}
