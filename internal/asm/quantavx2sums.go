package asm

import "fmt"

// sumNames are the constants of quant's sumConstants.
var sumNames = []string{"limit", "lowest", "least", "anchor"}

// sumFields are those of quant's sumArgs.
const sumFields = "sums, src, variances, means *float32, extent, blocks int, starts *int, factors, decodes *float32, lanes int"

// errorSums writes a kernel of the sums of the errors of blocks. A lane is a candidate, so that sums are in the order of the elements.
func (k *kernel256) errorSums(f *File, name, operation, does string) {
	k.begin(f, name, fmt.Sprintf(`sets the sums of blocks of extent elements x of src, of %%s: for each block, lanes of
variance·e² and then lanes of mean·e, e = decodes[s+i]·q-x in lane i, q the element's rounding of x %s
factors[s+i], s the start of the block. There are 8 or 16 lanes. extent and blocks are positive. Sums of
blocks with values that are not finite may be anything.`, does),
		"p sumArgs, c *sumConstants")
	sums, src, variances, means := k.Arg("sums"), k.Arg("src"), k.Arg("variances"), k.Arg("means")
	extent, blocks, starts := k.Arg("extent"), k.Arg("blocks"), k.Arg("starts")
	factors, decodes, lanes := k.Arg("factors"), k.Arg("decodes"), k.Arg("lanes")
	k.c = constants{k.Arg("c"), sumNames}
	start, left := k.GP("start"), k.GP("elements left")
	x, variance, mean := Y(0), Y(1), Y(2)
	limit, lowest, least, anchor := Y(12), Y(13), Y(11), Y(10)
	for i, v := range []Vec{limit, lowest, least, anchor} {
		k.I("VPBROADCASTD", k.c.At(sumNames[i]), v)
	}
	k.I("VMOVDQU", k.binade, yBinade)
	wide := k.NewLabel("wide")
	k.I("CMPQ", lanes, 16)
	k.Jump("JEQ", wide)
	for _, vectors := range []int{1, 2} {
		if vectors == 2 {
			k.Place(wide)
		}
		block := k.Label("block")
		k.I("MOVQ", starts.At(0), start)
		for i := range 2 * vectors {
			k.I("VPXOR", Y(5+i), Y(5+i), Y(5+i))
		}
		k.I("MOVQ", extent, left)
		element := k.Label("element")
		k.I("VBROADCASTSS", src.At(0), x)
		k.I("VBROADCASTSS", variances.At(0), variance)
		k.I("VBROADCASTSS", means.At(0), mean)
		for i := range vectors {
			q, t := Y(3), Y(4)
			k.I(operation, factors.At(32*i).By(start, 4), x, q)
			k.I("VMINPS", limit, q, q)
			k.I("VMAXPS", lowest, q, q)
			k.I("VPAND", yBinade, q, t)
			k.I("VMAXPS", least, t, t)
			k.I("VMULPS", anchor, t, t) // the addend that rounds to a step of the binade
			k.I("VADDPS", t, q, q)
			k.I("VSUBPS", t, q, q)
			k.I("VMULPS", decodes.At(32*i).By(start, 4), q, q)
			k.I("VSUBPS", x, q, q)
			k.I("VMULPS", q, q, t)
			k.I("VMULPS", variance, t, t)
			k.I("VADDPS", t, Y(5+i), Y(5+i))
			k.I("VMULPS", mean, q, q)
			k.I("VADDPS", q, Y(5+vectors+i), Y(5+vectors+i))
		}
		for _, r := range []Reg{src, variances, means} {
			k.I("ADDQ", 4, r)
		}
		k.I("SUBQ", 1, left)
		k.Jump("JNZ", element)
		for i := range 2 * vectors {
			k.I("VMOVUPS", Y(5+i), sums.At(32*i))
		}
		k.I("ADDQ", 64*vectors, sums)
		k.I("ADDQ", 8, starts)
		k.I("SUBQ", 1, blocks)
		k.Jump("JNZ", block)
		k.Return()
	}
}
