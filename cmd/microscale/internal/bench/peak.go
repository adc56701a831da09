package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A peak is an instruction whose rate bounds kernels, with a function that runs only that
// instruction, on registers.
type peak struct {
	instruction string
	registers   string
	needs       cpu.Set
	unit        Unit
	work        int // operations in a round
	run         func(rounds int, operands unsafe.Pointer)
}

// String returns the name of the peak, such as "VDPBF16PS zmm".
func (p peak) String() string { return strings.TrimSpace(p.instruction + " " + p.registers) }

func init() {
	cpu.AddTable("bench", &movers, func(m *mover) (string, cpu.Set) { return "memory, " + m.name, m.needs })
	cpu.AddTable("bench", &peaks, func(p *peak) (string, cpu.Set) { return p.String(), p.needs })
	cpu.AddTable("bench", &separators, func(s *separator) (string, cpu.Set) {
		return fmt.Sprintf("separate passes, blocks of %d", s.block), s.needs
	})
}

// plainPeak is float32 multiplications and additions in portable Go, which are scalar.
var plainPeak = peak{"multiply and add", "f32", 0, Floats, plainRound * 2, plainRounds}

const plainRound = 8

func plainRounds(n int, operands unsafe.Pointer) {
	x := (*[2]float32)(operands)
	a, b := x[0], x[1]
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for range n {
		s0, s1, s2, s3 = s0*a+b, s1*a+b, s2*a+b, s3*a+b
		s4, s5, s6, s7 = s4*a+b, s5*a+b, s6*a+b, s7*a+b
	}
	sink.Store(uint64(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7))
}

// Peak measures an instruction on registers only, as kernels use it, such as "VDPBF16PS zmm". An empty
// name, and one that the table of this architecture lacks on all processors, is measured by the portable
// loop. Peak returns an error if this processor does not have the instruction.
func (t *Team) Peak(name string, budget time.Duration) (Result, error) {
	for _, p := range peaks {
		if p.String() != name {
			continue
		}
		if !cpu.Has(p.needs) {
			return Result{}, fmt.Errorf("no peak of %s: it needs %s", name, p.needs)
		}
		return t.peak(p, budget), nil
	}
	return t.peak(plainPeak, budget), nil
}

// Peaks measures all instructions that bound kernels of this processor.
func (t *Team) Peaks(budget time.Duration) []Result {
	var list []Result
	for _, p := range peaks {
		if cpu.Uses(p.needs) {
			list = append(list, t.peak(p, budget/time.Duration(len(peaks))))
		}
	}
	return list
}

func (t *Team) peak(p peak, budget time.Duration) Result {
	operands := make([]float32, 32)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range operands {
		operands[i] = random.Float32() - 0.5 // random bits, so that the power drawn is that of real data
	}
	const rounds = 1 << 14
	return t.limit("peak", p.unit, t.Threads()*rounds*p.work, 1, budget, []try{{p.String(), func(int, int) {
		p.run(rounds, unsafe.Pointer(&operands[0]))
	}}})
}
