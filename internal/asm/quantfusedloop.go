package asm

// A fusedLoop is the loop of a fused kernel over rows of groups. The scales of a group are computed one
// group ahead of its codes, into one of two buffers, so that no code waits for its scale.
type fusedLoop struct {
	dst, scales, src, next, groups Reg
	write, read                    Reg // two buffers on the stack: factors being computed, factors in use
	started, left, encodes, rows   Reg
	ahead, codeAhead               Reg
}

// take takes the registers of the loop, and base for the constants.
func (l *fusedLoop) take(fn *Func, base *Reg) {
	l.dst, l.scales, l.src, *base = fn.Arg("codes"), fn.Arg("scales"), fn.Arg("src"), fn.Arg("c")
	l.write, l.read = fn.GP("factors of a group"), fn.GP("factors in use")
	l.next, l.groups = fn.GP("the group that is scaled next"), fn.GP("groups of its row left to scale")
	l.started, l.left, l.ahead = fn.GP("whether a group was scaled"), fn.GP("steps left of a group"), fn.Arg("ahead")
	l.encodes, l.rows, l.codeAhead = fn.GP("groups left to encode of a row"), fn.Arg("rows"), fn.Arg("codeAhead")
}

// run prints the loop. scale computes the scales and factors of the group at next and moves next and
// scales to those after it. encode stores the codes of one of the steps of a group at src, and
// moves dst and src; run moves read by factors bytes.
func (l *fusedLoop) run(fn *Func, steps, factors int, scale, encode func()) {
	fn.I("MOVQ", l.src, l.next)
	fn.I("XORL", l.started, l.started)
	fn.I("MOVQ", fn.FP("groups"), l.groups)
	fn.I("MOVQ", l.groups, l.encodes)

	codes, row := fn.NewLabel("encode"), fn.NewLabel("row")
	loop := fn.Label("group")
	fn.I("CMPQ", fn.FP("rows"), "$0") // left to scale
	fn.Jump("JEQ", codes)
	fn.Comment("scales of a group, one ahead of the codes")
	scale()
	fn.I("SUBQ", 1, l.groups)
	fn.Jump("JNZ", row)
	fn.I("MOVQ", fn.FP("groups"), l.groups)
	fn.I("ADDQ", fn.FP("srcGap"), l.next)
	fn.I("ADDQ", fn.FP("scaleGap"), l.scales)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Place(row)
	fn.I("TESTQ", l.started, l.started)
	fn.Jump("JNZ", codes)
	fn.I("MOVL", 1, l.started)
	fn.I("XCHGQ", l.read, l.write)
	fn.Jump("JMP", loop)
	fn.Place(codes)
	fn.I("MOVQ", steps, l.left)
	step := fn.Label("codes")
	encode()
	fn.I("ADDQ", factors, l.read)
	fn.I("SUBQ", 1, l.left)
	fn.Jump("JNZ", step)
	fn.I("SUBQ", steps*factors, l.read)
	fn.I("XCHGQ", l.read, l.write)
	fn.I("SUBQ", 1, l.encodes)
	fn.Jump("JNZ", loop)
	fn.I("MOVQ", fn.FP("groups"), l.encodes)
	fn.I("ADDQ", fn.FP("srcGap"), l.src)
	fn.I("ADDQ", fn.FP("codeGap"), l.dst)
	fn.I("SUBQ", 1, l.rows)
	fn.Jump("JNZ", loop)
}

// prefetchSource prefetches bytes of the source ahead of src, into the first-level cache: by way of the
// second, kernels reach half to 0.9 of the speed of memory.
func (l *fusedLoop) prefetchSource(fn *Func, bytes int) {
	for o := 0; o < bytes; o += 64 {
		fn.I("PREFETCHT0", l.src.At(o).By(l.ahead, 1))
	}
}
