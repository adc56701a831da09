package asm

import "fmt"

// quantSpread writes the kernels that copy rows by non-temporal stores.
func quantSpread() *File {
	f := NewFile("quant", "spread")
	spreadRows(f, "spreadRows", "VMOVDQU64", Z(0))
	spreadRows(f, "spreadRowsAVX2", "VMOVDQU", Y(0), Y(1))
	return f
}

// spreadRows writes the copy of rows by vectors that together fill a cache line.
func spreadRows(f *File, name, load string, vectors ...Vec) {
	fn := f.Func(name, fmt.Sprintf(`%s copies n times 64·width bytes, which are contiguous, by non-temporal stores
to places that are stride bytes apart and multiples of 64.`, name), "dst, src *byte, width, n, stride int")
	dst, src, width, n, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("width"), fn.Arg("n"), fn.Arg("stride")
	at, left := fn.GP("destination of a copy"), fn.GP("cache lines left of it")
	row := fn.Label("row")
	fn.I("MOVQ", dst, at)
	fn.I("MOVQ", width, left)
	part := fn.Label("part")
	for i, v := range vectors {
		o := 64 / len(vectors) * i
		fn.I(load, src.At(o), v)
		fn.I("VMOVNTDQ", v, at.At(o))
	}
	fn.I("ADDQ", 64, src)
	fn.I("ADDQ", 64, at)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", part)
	fn.I("ADDQ", stride, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", row)
	fn.Return()
}
