package asmgen

import "fmt"

// maxima: 128 columns of groups of 16 rows.
func (b byteCodes) maxima(f *File, name string) {
	b.Func = f.Func(name, fmt.Sprintf(`%s raises 16·groups rowMaxima, and 128 columnMaxima, to the bits of the
magnitudes of 128 columns of as many rows of %s, at least one group. Rows are so many
bytes apart.`, name, sourceName(b.source)), "rowMaxima, columnMaxima *float32, src *byte, groups, srcStride int")
	rows, columns, src, groups, stride := b.Arg("rowMaxima"), b.Arg("columnMaxima"), b.Arg("src"), b.Arg("groups"), b.Arg("srcStride")
	abs, greater := uint32(0x7fffffff), "VPMAXUD"
	if b.source == 16 {
		abs, greater = 0x7fff7fff, "VPMAXUW"
		broadcast(b.Func, 0xffff0000, b.GP("masks"), zUpper)
	}
	broadcast(b.Func, abs, b.GP("masks"), zAbs)
	vectors := 128 * b.source / 8 / 64
	down := func(i int) Vec { return Z(16 + i) }
	for i := range vectors {
		b.I("VPXORD", down(i), down(i), down(i))
	}
	loop := b.Label("loop")
	p := newPool(16)
	var tree []Vec
	for r := range 16 {
		var along Vec
		for i := range vectors {
			x := p.take()
			b.I("PREFETCHT1", src.At(64*(vectors+i)))
			b.I("VPANDD", src.At(64*i), zAbs, x)
			b.I(greater, x, down(i), down(i))
			if i == 0 {
				along = x
				continue
			}
			b.I(greater, x, along, along)
			p.give(x)
		}
		tree = b.fold(tree, along, r, 16, greater, p)
		b.I("ADDQ", stride, src)
	}
	b.widen(tree[0], p.take())
	b.I("VPMAXUD", rows.At(0), tree[0], tree[0])
	b.I("VMOVDQU64", tree[0], rows.At(0))
	b.I("ADDQ", 64, rows)
	b.I("SUBQ", 1, groups)
	b.Jump("JNZ", loop)
	for i := range 8 {
		v := down(i)
		if b.source == 16 {
			v = Z(0)
			if i%2 == 1 {
				b.I("VEXTRACTI64X4", 1, down(i/2), down(i/2).Y())
			}
			b.I("VPMOVZXWD", down(i/2).Y(), v)
			b.I("VPSLLD", 16, v, v)
		}
		b.I("VPMAXUD", columns.At(64*i), v, v)
		b.I("VMOVDQU64", v, columns.At(64*i))
	}
	b.Return()
}

// byteFactors writes the factors and scales of blocks by their amaxes.
func byteFactors(f *File) {
	b := byteCodes{Func: f.Func("byteFactors", `byteFactors sets factors[i] to what elements of a block of amaxes[i], which is finite, are
multiplied by, and scales[i] to its inverse, i < 16·n, n > 0.`, "factors, scales, amaxes *float32, n int, c *bytesConstants")}
	factors, scales, amaxes, n := b.Arg("factors"), b.Arg("scales"), b.Arg("amaxes"), b.Arg("n")
	b.c = constants{b.Arg("c"), bytesNames}
	loop := b.Label("loop")
	b.I("VMOVUPS", amaxes.At(0), Z(0))
	b.factors(Z(0), Z(1), Z(2))
	b.I("VMOVUPS", Z(1), factors.At(0))
	b.I("VDIVPS", Z(1), Z(2), Z(2))
	b.I("VMOVUPS", Z(2), scales.At(0))
	for _, r := range []Reg{factors, scales, amaxes} {
		b.I("ADDQ", 64, r)
	}
	b.I("SUBQ", 1, n)
	b.Jump("JNZ", loop)
	b.Return()
}
