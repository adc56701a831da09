package bench

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/memory"
)

// Granularity of the kernels that move memory, in bytes.
const (
	lineBytes  = 64  // writes, aligned to it
	chunkBytes = 512 // reads and copies
)

// A mover is one way to move memory. Reads and copies prefetch the given number of bytes
// ahead. Lengths are multiples of the granularity.
type mover struct {
	name  string
	needs cpu.Set
	way   Way
	read  func(p []byte, ahead int)
	write func(p []byte)
	copy  func(dst, src []byte, ahead int)
	ahead []int // prefetch distances to try
}

var plainMover = mover{"plain", 0, PlainStores, readPlain, func(p []byte) { clear(p) }, func(dst, src []byte, _ int) { copy(dst, src) },
	[]int{0}}

// sink prevents the compiler from removing reads.
var sink atomic.Uint64

func readPlain(p []byte, _ int) {
	var a, b, c, d uint64
	for ; len(p) >= 32; p = p[32:] {
		a |= binary.NativeEndian.Uint64(p)
		b |= binary.NativeEndian.Uint64(p[8:])
		c |= binary.NativeEndian.Uint64(p[16:])
		d |= binary.NativeEndian.Uint64(p[24:])
	}
	sink.Store(a | b | c | d)
}

// ways returns the movers of the best tier that has any, one for each kind of store.
func ways() []mover {
	var list []mover
	for _, m := range movers { // best first
		if cpu.Uses(m.needs) && (len(list) == 0 || cpu.TierOf(m.needs) == cpu.TierOf(list[0].needs)) {
			list = append(list, m)
		}
	}
	return list
}

// Ways returns the kinds of stores of the best tier.
func Ways() []Way {
	var list []Way
	for _, w := range ways() {
		list = append(list, w.way)
	}
	return list
}

// buffer returns n bytes aligned to a cache line.
func buffer(n int) []byte {
	b := make([]byte, n+lineBytes)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (lineBytes - 1))
	return b[skip : skip+n : skip+n]
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// A Memory holds the buffers of streams, reused between measurements.
type Memory struct {
	in, out []byte
	huge    bool // ask for huge pages for in
}

// reserve grows the buffers for streams of the given numbers of bytes.
func (m *Memory) reserve(in, out int) {
	if len(m.in) < in {
		m.in = buffer(in)
		if m.huge {
			memory.Huge(m.in)
		}
		for i := 0; i < in; i += lineBytes {
			m.in[i] = 1 // faults in each page; untouched pages share one of zeros
		}
	}
	if len(m.out) < out {
		m.out = buffer(out)
		clear(m.out)
	}
}

// A Way selects the stores of a stream.
type Way string

const (
	AnyStores   Way = ""             // the faster of the others
	PlainStores Way = "plain"        // regular stores, which read a line before they change it
	NonTemporal Way = "non-temporal" // non-temporal stores of whole lines
)

// passBytes is the maximum number of bytes that a pass moves per thread. The next pass
// continues where the last one ended. Runs are short, so that few are disturbed, and yet cover
// all of the memory.
const passBytes = 8 << 20

// passes returns the number of passes that move n bytes.
func (t *Team) passes(n int) int { return max(1, n/(passBytes*t.Threads())) }

// chunk returns a worker's range [from, to) of n bytes in pass i of passes.
func (t *Team) chunk(worker, i, passes, n, grain int) (from, to int) {
	start, end := part(i%passes, passes, n, grain)
	from, to = t.share(worker, end-start, grain)
	return start + from, start + to
}

// Read measures reading n bytes with all threads.
func (t *Team) Read(mem *Memory, n int, budget time.Duration) Result {
	n = roundUp(n, chunkBytes*t.Threads())
	mem.reserve(n, 0)
	passes := t.passes(n)
	var tries []try
	w := ways()[0]
	for _, ahead := range w.ahead {
		tries = append(tries, try{w.name, func(worker, i int) {
			from, to := t.chunk(worker, i, passes, n, chunkBytes)
			w.read(mem.in[from:to], ahead)
		}})
	}
	return t.limit("read", Bytes, n, passes, budget, tries)
}

// Write measures writing n bytes with all threads.
func (t *Team) Write(mem *Memory, n int, way Way, budget time.Duration) Result {
	n = roundUp(n, lineBytes*t.Threads())
	mem.reserve(0, n)
	passes := t.passes(n)
	var tries []try
	for _, w := range storing(way) {
		tries = append(tries, try{w.name, func(worker, i int) {
			from, to := t.chunk(worker, i, passes, n, lineBytes)
			w.write(mem.out[from:to])
		}})
	}
	return t.limit("write", Bytes, n, passes, budget, tries)
}

// Copy measures copying n bytes. The rate counts both the read and the write.
func (t *Team) Copy(mem *Memory, n int, way Way, budget time.Duration) Result {
	n = roundUp(n, chunkBytes*t.Threads())
	mem.reserve(n, n)
	passes := t.passes(2 * n)
	var tries []try
	for _, w := range storing(way) {
		for _, ahead := range w.ahead {
			tries = append(tries, try{w.name, func(worker, i int) {
				from, to := t.chunk(worker, i, passes, n, chunkBytes)
				w.copy(mem.out[from:to], mem.in[from:to], ahead)
			}})
		}
	}
	return t.limit("copy", Bytes, 2*n, passes, budget, tries)
}

// tiles are the numbers of bytes to try that a stream reads before it writes.
var tiles = []int{2 << 10, 16 << 10}

// Stream measures reading in bytes and writing out bytes at the same time, evenly mixed, as an
// operation that reads its source once and writes its result once. The rate counts both.
// Stream returns the best of several mixtures.
func (t *Team) Stream(mem *Memory, in, out int, way Way, budget time.Duration) Result {
	in, out = roundUp(in, chunkBytes*t.Threads()), roundUp(out, lineBytes*t.Threads())
	mem.reserve(in, out)
	passes := t.passes(in + out)
	var tries []try
	for _, w := range storing(way) {
		for _, tile := range tiles {
			for _, ahead := range w.ahead {
				tries = append(tries, try{w.name, func(worker, i int) {
					from, to := t.chunk(worker, i, passes, in, chunkBytes)
					outFrom, outTo := t.chunk(worker, i, passes, out, lineBytes)
					mix(w, mem.in[from:to], mem.out[outFrom:outTo], tile, ahead)
				}})
			}
		}
	}
	return t.limit("stream", Bytes, in+out, passes, budget, tries)
}

// mix alternates between reading a tile of in and writing the corresponding share of out.
func mix(w mover, in, out []byte, tile, ahead int) {
	total, written := len(out), 0
	for done := 0; done < len(in); {
		n := min(tile, len(in)-done)
		w.read(in[done:done+n], ahead)
		done += n
		due := int(float64(total)*float64(done)/float64(len(in))) / lineBytes * lineBytes
		w.write(out[written:due])
		written = due
	}
	w.write(out[written:])
}

// storing returns the movers of the best tier that use the given stores, or the first mover if
// there is none.
func storing(way Way) []mover {
	all := ways()
	list := slices.DeleteFunc(slices.Clone(all), func(w mover) bool { return way != AnyStores && way != w.way })
	if len(list) == 0 {
		return all[:1]
	}
	return list
}

// A try is one of several ways to do the same work.
type try struct {
	kernel string
	pass   func(worker, i int)
}

// limit measures the fastest of several ways to do the same work, each in the given number of
// passes.
func (t *Team) limit(op string, unit Unit, work, passes int, budget time.Duration, tries []try) Result {
	best, least := tries[0], math.Inf(1)
	if len(tries) > 1 {
		start := time.Now()
		for _, w := range tries {
			if s := t.Measure(budget/time.Duration(2*len(tries)), w.pass); s.Median < least {
				best, least = w, s.Median
			}
		}
		budget -= time.Since(start)
	}
	return Result{
		Op: op, Threads: t.Threads(), Kernel: best.kernel, Time: t.Measure(budget, best.pass).times(passes),
		Work: float64(work), Unit: unit, Limit: math.NaN(),
	}
}
