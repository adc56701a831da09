package asm

import (
	"fmt"
	"strings"
)

// quantBytes256 writes the AVX2 kernels for codes of 8 bits under FP32 scales.
func quantBytes256() *File {
	f := NewFile("quant", "bytesavx2")
	tables := makeTables256(f)
	for _, source := range []int{32, 16} {
		k := kernel256{tables256: tables, source: source}
		k.blocks(f)
		k.rows(f)
	}
	return f
}

// begin begins a kernel that is named after its source.
func (k *kernel256) begin(f *File, name, doc, params string) {
	name += map[int]string{16: "BF16"}[k.source] + "AVX2"
	k.slots = nil
	k.Func = f.Func(name, name+" "+fmt.Sprintf(doc, sourceName(k.source)), params)
}

// encode writes the codes of the 32 elements at src, each times yFactor.
func (k *kernel256) encode(src, codes Mem, ahead Reg) {
	x := k.vectors(src)
	k.codes(x, func(_ int, a, e Vec) { k.roundScaled("VMULPS", yFactor, a, e) })
	k.signs(x)
	k.I("VPOR", Y(4), Y(0), Y(0))
	k.sort()
	if codes.Disp%64 > 0 {
		ahead = "" // one prefetch per cache line
	}
	k.storeCodes("VMOVDQU", Y(0), codes, ahead)
}

// raise raises amax to the magnitudes of 32 bytes of the source, using t.
func (k *kernel256) raise(at Mem, amax, t Vec) {
	k.I("VPAND", at, yAbs, t)
	if k.source == 16 {
		k.I("VPMAXUW", t, amax, amax)
	} else {
		k.I("VPMAXUD", t, amax, amax)
	}
}

// widen makes dwords of lanes that hold the amaxes of two BF16, using t.
func (k *kernel256) widen(amax, t Vec) {
	if k.source == 16 {
		k.I("VPSLLD", 16, amax, t)
		k.I("VPMAXUW", t, amax, amax)
		k.I("VPAND", k.upper, amax, amax)
	}
}

// blocks writes the kernel of blocks of 128, each with a separate scale.
func (k kernel256) blocks(f *File) {
	k.begin(f, "blocks128", blocksDoc+strings.Replace(gapsDoc, "%d", "32", 1), "p fusedArgs, c *bytesConstants) (amax uint64")
	codes, scales, src, blocks, ahead := k.Arg("codes"), k.Arg("scales"), k.Arg("src"), k.Arg("groups"), k.Arg("ahead")
	k.c = constants{k.Arg("c"), bytesNames}
	t, codeAhead, left := k.GP("result"), k.Arg("codeAhead"), k.GP("64 elements left")
	k.spread("limit", "least", "anchor", "max", "most", "mask", "one")
	k.zero("amax")
	k.load()
	loop := k.Label("block")
	k.Comment("amax")
	k.I("VPXOR", Y(2), Y(2), Y(2))
	k.I("VPXOR", Y(3), Y(3), Y(3))
	for i := range k.bytes(128) / 32 {
		if i%2 == 0 {
			k.I("PREFETCHT1", src.At(32*i).By(ahead, 1))
		}
		k.raise(src.At(32*i), Y(2+i%2), Y(4+i%2))
	}
	k.widen(Y(2), Y(4))
	k.widen(Y(3), Y(5))
	k.I("VPMAXUD", Y(3), Y(2), Y(2))
	k.maxInX0(Y(2))
	k.I("VPMAXUD", k.slot("amax"), Y(0), Y(1))
	k.I("VMOVDQU", Y(1), k.slot("amax"))
	k.Comment("max/amax, kept finite; 1 for a block of zeros")
	k.I("VPCMPEQD", X(0), yZeros(&k).X(), X(1))
	k.I("VMOVUPS", k.slot("max"), X(2))
	k.I("VDIVPS", X(0), X(2), X(2))
	k.I("VMINPS", k.slot("most"), X(2), X(2))
	k.I("VPAND", k.slot("mask"), X(2), X(2))
	k.I("VMOVUPS", k.slot("one"), X(3))
	k.I("VBLENDVPS", X(1), X(3), X(2), X(2))
	k.I("VBROADCASTSS", X(2), yFactor)
	k.I("VDIVPS", X(2), X(3), X(3))
	k.I("VMOVSS", X(3), scales.At(0))
	k.Comment("codes")
	k.I("MOVQ", 2, left)
	half := k.Label("codes")
	for i := range 2 {
		k.encode(src.At(i*k.bytes(32)), codes.At(32*i), codeAhead)
	}
	k.I("ADDQ", k.bytes(64), src)
	k.I("ADDQ", 64, codes)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", half)
	k.I("ADDQ", 4, scales)
	k.I("SUBQ", 1, blocks)
	k.Jump("JNZ", loop)
	k.nextRow(loop, blocks, codes, scales, src)
	k.I("VMOVDQU", k.slot("amax"), Y(2))
	k.maxDword256(Y(2), t)
	k.I("MOVQ", t, k.FP("amax"))
	k.Return()
}

// yZeros returns a register of zeros; it clears a free one if there is none.
func yZeros(k *kernel256) Vec {
	if k.source == 16 {
		return yZero
	}
	k.I("VPXOR", Y(4), Y(4), Y(4))
	return Y(4)
}

// rows writes the kernel of rows of blocks with a factor for each.
func (k kernel256) rows(f *File) {
	k.begin(f, "encodeRows", encodeRowsDoc+strings.NewReplacer("%d", "32", ", and codeAhead\nbytes further in codes", "").Replace(gapsDoc),
		"p rowsArgs, c *encodeConstants")
	l := k.rowsLoop()
	k.c = l.c
	k.spread("limit", "least", "anchor")
	k.load()
	size := k.bytes(64)
	l.emit(k.Func, size, func() {
		k.I("VBROADCASTSS", l.factors.At(0), yFactor)
	}, func() {
		for i := range 2 {
			k.encode(l.src.At(i*size/2), l.codes.At(32*i), "")
		}
	})
}

// quantStages256 writes the AVX2 kernels of single stages: codes under factors, and amaxes of
// blocks.
func quantStages256() *File {
	f := NewFile("quant", "stagesavx2")
	tables := makeTables256(f)
	for _, v := range []struct{ name, operation, does string }{
		{"encodeTimes", "VMULPS", "times"}, {"encodeOver", "VDIVPS", "divided by"}, {"join4", "VMULPS", "times"},
	} {
		k := kernel256{tables256: tables, source: 32}
		k.encodeStage(f, v.name, v.operation, v.does)
	}
	(&kernel256{tables256: tables, source: 32}).amaxes(f)
	(&kernel256{tables256: tables, source: 16}).amaxes(f)
	return f
}

// A codesLoop is the loop that kernels of codes under factors share. An iteration makes 32
// bytes of codes.
type codesLoop struct {
	unit                              int
	codes, src, random, n, factors, t Reg // random is none where the codes are to nearest
}

// yStageAmax holds the maxima of a row.
var yStageAmax = Y(10)

// codesLoop takes registers for the parameters. names are those of the constants.
func (k *kernel256) codesLoop(unit int, random bool, names []string) codesLoop {
	l := codesLoop{unit: unit, codes: k.Arg("codes"), src: k.Arg("src")}
	if random {
		l.random = k.Arg("random")
	}
	l.n, l.factors = k.Arg("n"), k.Arg("factors")
	k.c = constants{k.Arg("c"), names}
	l.t = k.GP("result")
	return l
}

// emit prints the loop. From the magnitudes of 32 elements, which encode raises the
// maxima to, it leaves those of their codes in Y0; u counts the times of a unit. The
// factors of four vectors are in yFactor, twice, and Y7.
func (l codesLoop) emit(k *kernel256, encode func(u int, at Mem)) {
	if l.unit == 32 {
		k.I("VMOVD", k.c.At("signShift"), X(8))
		k.Note("X8", "shift from the sign of a byte to that of a code")
	}
	k.Note(yStageAmax, "maxima")
	k.load()
	k.I("VPXOR", yStageAmax, yStageAmax, yStageAmax)
	loop := k.Label("loop")
	for u := range l.unit / 32 {
		at := l.src.At(128 * u)
		for i := range 2 {
			k.I("PREFETCHT0", at.At(64*i+rowPrefetch))
			k.I("VBROADCASTSS", l.factors.At(8*u+4*i), stageFactor(2*i))
		}
		encode(u, at)
		k.signs(k.vectors(at))
		if l.unit == 32 {
			k.I("VPSRLW", X(8), Y(4), Y(4))
		} else {
			k.I("VPSRLW", 7-packings[4].sign, Y(4), Y(4))
		}
		k.I("VPOR", Y(4), Y(0), Y(0))
		if l.unit == 64 && u == 0 {
			k.I("VMOVDQA", Y(0), yFirst)
		}
	}
	if l.unit == 32 {
		k.sort()
	} else {
		k.pairs()
	}
	if l.random == "" {
		k.I("PREFETCHT0", l.codes.At(codesAhead))
	}
	k.I("VMOVDQU", Y(0), l.codes.At(0))
	k.I("ADDQ", 32, l.codes)
	k.I("ADDQ", 4*l.unit, l.src)
	if l.random != "" {
		k.I("ADDQ", 4*l.unit, l.random)
	}
	k.I("ADDQ", l.unit/4, l.factors)
	k.I("SUBQ", 1, l.n)
	k.Jump("JNZ", loop)
	k.maxDword256(yStageAmax, l.t)
	k.I("MOVQ", l.t, k.FP("amax"))
	k.Return()
}

// stageFactor returns the register of the factor of vector i of four.
func stageFactor(i int) Vec { return []Vec{yFactor, Y(7)}[i/2] }

func (k *kernel256) encodeStage(f *File, name, operation, does string) {
	unit := map[string]int{"join4": 64}[name]
	how := "of 4 bits, two to a byte"
	if unit == 0 {
		unit, how = 32, "one to a byte"
	}
	k.begin(f, name, fmt.Sprintf(`sets codes, %s, to those of the elements src[i] of %%s, each
%s factors[i/16], i < %d·n, n > 0, and returns the bits of the largest magnitude of
src. Where that is Inf or NaN, the codes are undefined.`, how, does, unit),
		"codes *byte, src *float32, n int, factors *float32, c *encodeConstants) (amax uint64")
	l := k.codesLoop(unit, false, encodeNames)
	k.spread("limit", "least", "anchor")
	l.emit(k, func(_ int, at Mem) {
		k.codes(k.vectors(at), func(i int, a, e Vec) {
			k.I("VPMAXUD", a, yStageAmax, yStageAmax)
			k.roundScaled(operation, stageFactor(i), a, e)
		})
	})
}

func (k *kernel256) amaxes(f *File) {
	k.begin(f, "amaxes", `raises amax[j] to the bits, as float32, of the largest magnitude of block j,
j < blocks, each of 16·units elements of %s. Both are at least 1.`, "amax *uint32, src *byte, blocks, units int")
	amax, src, blocks, units := k.Arg("amax"), k.Arg("src"), k.Arg("blocks"), k.Arg("units")
	left := k.GP("units left of the block, and result")
	if k.source == 16 {
		k.I("VMOVDQU", k.abs16, yAbs)
	} else {
		k.I("VMOVDQU", k.abs, yAbs)
	}
	block := k.Label("block")
	k.I("VPXOR", Y(2), Y(2), Y(2))
	k.I("VPXOR", Y(3), Y(3), Y(3))
	k.I("MOVQ", units, left)
	loop := k.Label("loop")
	k.I("PREFETCHT0", src.At(rowPrefetch))
	for i := range k.bytes(16) / 32 {
		k.raise(src.At(32*i), Y(2+i), Y(4+i))
	}
	k.I("ADDQ", k.bytes(16), src)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", loop)
	k.I("VPMAXUD", Y(3), Y(2), Y(2))
	k.widen(Y(2), Y(4))
	k.I("VMOVD", amax.At(0), X(3))
	k.I("VPMAXUD", Y(3), Y(2), Y(2))
	k.maxDword256(Y(2), left)
	k.I("MOVL", left, amax.At(0))
	k.I("ADDQ", 4, amax)
	k.I("SUBQ", 1, blocks)
	k.Jump("JNZ", block)
	k.Return()
}
