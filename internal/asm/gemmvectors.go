package asm

// vectorFields are the fields of gemm.vectorArgs, and vectorParams the parameters of gemm.vectorFunc.
const (
	vectorFields = "w, s, x unsafe.Pointer, steps, rows, ahead, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, " +
		"yStride, batch int, sums, tables unsafe.Pointer"
	vectorParams = "p vectorArgs) (found uint64"
)

// limitSteps sets steps to those of the next group: all steps of a group, or those left. It subtracts
// them from left.
func limitSteps(fn *Func, left, steps Reg, group int) {
	fn.I("MOVQ", group, steps)
	fn.I("CMPQ", left, steps)
	fn.I("CMOVQLT", left, steps)
	fn.I("SUBQ", steps, left)
}

// vectorBatches are the numbers of rows of A that a loop of a vector kernel multiplies by.
const vectorBatches = 4

// vectorX addresses rows of A from a common position.
type vectorX struct{ x, stride, triple Reg }

func newVectorX(fn *Func) vectorX {
	v := vectorX{fn.GP("position in x"), fn.Arg("xStride"), fn.GP("3 times xStride")}
	fn.I("LEAQ", v.stride.At(0).By(v.stride, 2), v.triple)
	return v
}

// at returns the memory off bytes past the position in row b.
func (v vectorX) at(b, off int) Mem { return rowAt(v.x, v.stride, v.triple, b, off) }

// rowAt returns the memory off bytes past the position in row i of up to four.
func rowAt(p, stride, triple Reg, i, off int) Mem {
	switch i {
	case 1, 2:
		return p.At(off).By(stride, i)
	case 3:
		return p.At(off).By(triple, 1)
	}
	return p.At(off)
}

// byBatch writes loop for most (a power of two), half as many, …, 1 rows of A, and selects one at run time.
func byBatch(fn *Func, most int, loop func(batch int)) {
	done := fn.NewLabel("done")
	for batch := most; batch > 0; batch /= 2 {
		next := fn.NewLabel("fewer")
		if batch > 1 {
			fn.I("CMPQ", fn.FP("batch"), batch)
			fn.Jump("JLT", next)
		}
		loop(batch)
		if batch > 1 {
			fn.Jump("JMP", done)
			fn.Place(next)
		}
	}
	fn.Place(done)
}

// addLanes adds the sum of the lanes of a vector to a float32 in memory. It changes the vector,
// and t.
func addLanes(fn *Func, a, t Vec, to Mem) {
	if a.width == 'Z' {
		fn.I("VEXTRACTF64X4", 1, a, t.Y())
		fn.I("VADDPS", t.Y(), a.Y(), a.Y())
		fn.I("VEXTRACTF32X4", 1, a.Y(), t.X())
	} else {
		fn.I("VEXTRACTF128", 1, a, t.X())
	}
	fn.I("VADDPS", t.X(), a.X(), a.X())
	for _, swap := range []int{0x4e, 0xb1} {
		fn.I("VPSHUFD", swap, a.X(), t.X())
		fn.I("VADDPS", t.X(), a.X(), a.X())
	}
	fn.I("VADDSS", to, a.X(), a.X())
	fn.I("VMOVSS", a.X(), to)
}

// addAllLanes is addLanes for n vectors stored at sums. The elements are yStride bytes apart,
// from to on. It changes sums, to and n.
func addAllLanes(fn *Func, vec func(int) Vec, bytes int, sums, to, n Reg) {
	loop := fn.Label("lanes")
	fn.I("VMOVUPS", sums.At(0), vec(0))
	addLanes(fn, vec(0), vec(1), to.At(0))
	fn.I("ADDQ", bytes, sums)
	fn.I("ADDQ", fn.FP("yStride"), to)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
}
