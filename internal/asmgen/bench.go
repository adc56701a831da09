package asmgen

import "fmt"

// Bench writes the kernels that measure a machine's limits: streams through
// memory, and instructions on registers alone.
func Bench() []*File {
	memory := NewFile("bench", "memory")
	for _, v := range benchWidths {
		v.read(memory)
		for _, s := range v.stores {
			v.write(memory, s)
			v.copy(memory, s)
		}
	}

	peak := NewFile("bench", "peak")
	for _, p := range benchPeaks {
		p.write(peak)
	}
	return []*File{memory, peak}
}

// A benchWidth is vectors of one width, and the instructions that move them.
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

// benchStep ends a loop of n iterations, each of which moves the pointers on.
func benchStep(fn *Func, n Reg, loop Label, bytes int, pointers ...Reg) {
	for _, p := range pointers {
		fn.I("ADDQ", bytes, p)
	}
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
}

func (v benchWidth) read(f *File) {
	fn := f.Func("read"+v.name, fmt.Sprintf("read%s reads n times %d bytes from p on, and asks for those ahead of them\nby as many bytes. n is at least 1.", v.name, benchRead), "p unsafe.Pointer, n, ahead int")
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
	fn := f.Func("write"+s.name+v.name, fmt.Sprintf("write%s%s writes n cache lines of zeros from p on, with %s stores. p is a\nmultiple of %d, n at least 1.", s.name, v.name, s.doc, benchLine), "p unsafe.Pointer, n int")
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
	fn := f.Func("copy"+s.name+v.name, fmt.Sprintf("copy%s%s copies n times %d bytes from src on to dst on, with %s stores,\nand asks for those ahead of them by as many bytes. dst is a multiple of %d, n at least 1.", s.name, v.name, benchRead, s.doc, benchLine), "dst, src unsafe.Pointer, n, ahead int")
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

// A benchPeak is one instruction with two sources and an accumulator.
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

// benchRound is the instructions of an iteration.
const benchRound = 24

func (p benchPeak) write(f *File) {
	fn := f.Func(p.name, fmt.Sprintf("%s runs n rounds of %d times %s with %d accumulators, both sources\nfrom 128 bytes at x. n is at least 1.", p.name, benchRound, p.instruction, p.accumulators), "n int, x unsafe.Pointer")
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
