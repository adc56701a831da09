package asm

import "fmt"

// Bench writes the kernels that measure the limits of a machine: memory streams, and
// instructions on registers only.
func Bench() []*File {
	memory := NewFile("cmd/microscale/internal/bench", "memory")
	for _, v := range benchWidths {
		v.read(memory)
		for _, s := range v.stores {
			v.write(memory, s)
			v.copy(memory, s)
		}
	}

	peak := NewFile("cmd/microscale/internal/bench", "peak")
	for _, p := range benchPeaks {
		p.write(peak)
	}
	tilePeak(peak)

	unfused := NewFile("cmd/microscale/internal/bench", "unfused")
	for _, v := range benchWidths {
		for _, block := range benchBlocks {
			v.amax(unfused, block)
			v.scale(unfused, block)
		}
	}
	return []*File{memory, peak, unfused}
}

// A benchWidth is a vector width with its load and store instructions.
type benchWidth struct {
	name   string
	bytes  int
	vec    func(int) Vec
	or     string // bitwise, of memory and a register
	move   string
	stores []benchStore
}

type benchStore struct{ name, doc, instruction string }

var benchWidths = []benchWidth{
	{"AVX512", 64, Z, "VPORQ", "VMOVDQU64", []benchStore{{"", "plain", "VMOVDQU64"}, {"NT", "non-temporal", "VMOVNTDQ"}}},
	{"AVX2", 32, Y, "VPOR", "VMOVDQU", []benchStore{{"", "plain", "VMOVDQU"}, {"NT", "non-temporal", "VMOVNTDQ"}}},
}

const (
	benchLine = 64  // bytes of a cache line
	benchRead = 512 // bytes read in an iteration
)

// benchStep ends a loop of n iterations, each of which advances the pointers.
func benchStep(fn *Func, n Reg, loop Label, bytes int, pointers ...Reg) {
	for _, p := range pointers {
		fn.I("ADDQ", bytes, p)
	}
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
}

func (v benchWidth) read(f *File) {
	fn := f.Func("read"+v.name, fmt.Sprintf("read%s reads n times %d bytes from p on, and asks for those ahead of them\nby as many bytes. "+
		"n is at least 1.", v.name, benchRead), "p unsafe.Pointer, n, ahead int")
	p, n, ahead := fn.Arg("p"), fn.Arg("n"), fn.Arg("ahead")
	const sums = 4
	fn.Note(fmt.Sprintf("%v…%v", v.vec(0), v.vec(sums-1)), "what was read")
	loop := fn.Label("loop")
	for i := 0; i < benchRead; i += benchLine {
		fn.I("PREFETCHT0", p.At(i).By(ahead, 1))
	}
	for i := 0; i < benchRead; i += v.bytes {
		sum := v.vec(i / v.bytes % sums)
		fn.I(v.or, p.At(i), sum, sum)
	}
	benchStep(fn, n, loop, benchRead, p)
	fn.Return()
}

func (v benchWidth) write(f *File, s benchStore) {
	fn := f.Func("write"+s.name+v.name,
		fmt.Sprintf("write%s%s writes n cache lines of zeros from p on, with %s stores. p is a\nmultiple of %d, n at least 1.", s.name, v.name,
			s.doc, benchLine), "p unsafe.Pointer, n int")
	p, n := fn.Arg("p"), fn.Arg("n")
	fn.I("VPXOR", X(0), X(0), X(0))
	loop := fn.Label("loop")
	for i := 0; i < benchLine; i += v.bytes {
		fn.I(s.instruction, v.vec(0), p.At(i))
	}
	benchStep(fn, n, loop, benchLine, p)
	fn.Return()
}

func (v benchWidth) copy(f *File, s benchStore) {
	fn := f.Func("copy"+s.name+v.name, fmt.Sprintf("copy%s%s copies n times %d bytes from src on to dst on, with %s stores,\nand asks for "+
		"those ahead of them by as many bytes. dst is a multiple of %d, n at least 1.", s.name, v.name, benchRead, s.doc, benchLine),
		"dst, src unsafe.Pointer, n, ahead int")
	dst, src, n, ahead := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n"), fn.Arg("ahead")
	loop := fn.Label("loop")
	for i := 0; i < benchRead; i += benchLine {
		fn.I("PREFETCHT0", src.At(i).By(ahead, 1))
	}
	for i := 0; i < benchRead; i += v.bytes {
		r := v.vec(i / v.bytes % 8)
		fn.I(v.move, src.At(i), r)
		fn.I(s.instruction, r, dst.At(i))
	}
	benchStep(fn, n, loop, benchRead, src, dst)
	fn.Return()
}

// benchBlocks are the numbers of elements of a block in the unfused passes.
var benchBlocks = []int{32, 16}

func (v benchWidth) amax(f *File, block int) {
	name := fmt.Sprintf("blockAmax%d%s", block, v.name)
	fn := f.Func(name, fmt.Sprintf("%s sets dst to the largest magnitude of each of n blocks of %d\nelements. n is at least 1.", name, block),
		"dst, src *float32, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	mask, parts := v.vec(15), block*4/v.bytes
	fn.Note(mask, "all bits but the sign")
	if v.bytes == 64 {
		fn.I("VPTERNLOGD", 255, mask, mask, mask)
	} else {
		fn.I("VPCMPEQD", mask, mask, mask)
	}
	fn.I("VPSRLD", 1, mask, mask)
	loop := fn.Label("loop")
	for i := range parts {
		fn.I("VANDPS", src.At(i*v.bytes), mask, v.vec(i))
	}
	for step := parts / 2; step > 0; step /= 2 {
		for i := range step {
			fn.I("VMAXPS", v.vec(i+step), v.vec(i), v.vec(i))
		}
	}
	if v.bytes == 64 {
		fn.I("VEXTRACTF64X4", 1, Z(0), Y(1))
		fn.I("VMAXPS", Y(1), Y(0), Y(0))
	}
	fn.I("VEXTRACTF128", 1, Y(0), X(1))
	fn.I("VMAXPS", X(1), X(0), X(0))
	for _, swap := range []int{0x4e, 0xb1} {
		fn.I("VPERMILPS", swap, X(0), X(1))
		fn.I("VMAXPS", X(1), X(0), X(0))
	}
	fn.I("VMOVSS", X(0), dst.At(0))
	fn.I("ADDQ", 4, dst)
	benchStep(fn, n, loop, block*4, src)
	fn.Return()
}

func (v benchWidth) scale(f *File, block int) {
	name := fmt.Sprintf("scaleBlocks%d%s", block, v.name)
	fn := f.Func(name, fmt.Sprintf("%s sets dst to n blocks of %d elements, each times its factor.\nn is at least 1.", name, block),
		"dst, src, factors *float32, n int")
	dst, src, factors, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("factors"), fn.Arg("n")
	loop := fn.Label("loop")
	fn.I("VBROADCASTSS", factors.At(0), v.vec(0))
	for i := range block * 4 / v.bytes {
		fn.I("VMULPS", src.At(i*v.bytes), v.vec(0), v.vec(i+1))
		fn.I("VMOVUPS", v.vec(i+1), dst.At(i*v.bytes))
	}
	fn.I("ADDQ", 4, factors)
	benchStep(fn, n, loop, block*4, src, dst)
	fn.Return()
}

// A benchPeak measures one instruction with two sources and an accumulator.
type benchPeak struct {
	name, instruction string
	vec               func(int) Vec
	accumulators      int
}

var benchPeaks = []benchPeak{
	{"peakFMA512", "VFMADD231PS", Z, 24},
	{"peakFMA256", "VFMADD231PS", Y, 12}, // all that 16 registers allow
	{"peakDPBF16", "VDPBF16PS", Z, 24},
	{"peakDPBUSD", "VPDPBUSD", Z, 24},
}

// benchRound is the number of instructions of an iteration.
const benchRound = 24

// tilePeak writes the loop of tile products; all rows of the tiles are equal.
func tilePeak(f *File) {
	const accumulators = 4 // as in the kernels
	fn := f.Func("peakTDPBF16", fmt.Sprintf("peakTDPBF16 runs n rounds of %d times TDPBF16PS with %d accumulators, the rows of\nboth "+
		"sources from 128 bytes at x. n is at least 1.", benchRound, accumulators), "n int, x unsafe.Pointer")
	n, x, tmp := fn.Arg("n"), fn.Arg("x"), fn.GP("configuration; from row to row")
	a, b := T(accumulators), T(accumulators+1)
	fn.Note(fmt.Sprintf("%v %v", a, b), "sources")
	configureTiles(f, fn, tmp)
	fn.I("XORL", tmp, tmp)
	fn.I("TILELOADD", x.At(0).By(tmp, 1), a)
	fn.I("TILELOADD", x.At(64).By(tmp, 1), b)
	for i := range accumulators {
		fn.I("TILEZERO", T(i))
	}
	loop := fn.Label("loop")
	for i := range benchRound {
		fn.I("TDPBF16PS", b, a, T(i%accumulators))
	}
	benchStep(fn, n, loop, 0)
	fn.I("TILERELEASE")
	fn.Return()
}

func (p benchPeak) write(f *File) {
	fn := f.Func(p.name, fmt.Sprintf("%s runs n rounds of %d times %s with %d accumulators, both sources\nfrom 128 bytes at x. n is at "+
		"least 1.", p.name, benchRound, p.instruction, p.accumulators), "n int, x unsafe.Pointer")
	n, x := fn.Arg("n"), fn.Arg("x")
	a, b := p.vec(p.accumulators), p.vec(p.accumulators+1)
	fn.Note(fmt.Sprintf("%v %v", a, b), "sources")
	fn.I("VMOVUPS", x.At(0), a)
	fn.I("VMOVUPS", x.At(64), b)
	for i := range p.accumulators {
		if i < 16 {
			fn.I("VPXOR", X(i), X(i), X(i))
		} else {
			fn.I("VPXORQ", p.vec(i), p.vec(i), p.vec(i))
		}
	}
	loop := fn.Label("loop")
	for i := range benchRound {
		fn.I(p.instruction, a, b, p.vec(i%p.accumulators))
	}
	benchStep(fn, n, loop, 0)
	fn.Return()
}
