package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	tier        cpu.Tier
	unit        Unit
	work        int // operations in a round
	run         func(rounds int, operands unsafe.Pointer)
}

// String returns the name of the peak, such as "VDPBF16PS zmm".
func (p peak) String() string { return strings.TrimSpace(p.instruction + " " + p.registers) }

// plainPeak is float32 multiplications and additions in portable Go, which are scalar.
var plainPeak = peak{"multiply and add", "f32", cpu.Plain, Floats, plainRound * 2, plainRounds}

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

// Peak measures an instruction on registers only, as kernels of a tier use it. An empty name
// selects the first instruction of the tier. Peak returns an error if there is none. A tier
// without instructions in the table, such as neon, is measured by the portable loop.
func (t *Team) Peak(tier cpu.Tier, instruction string, budget time.Duration) (Result, error) {
	if !slices.ContainsFunc(peaks, func(p peak) bool { return p.tier == tier }) && cpu.Has(tier) {
		return t.peak(plainPeak, budget), nil
	}
	for _, p := range peaks {
		if p.tier == tier && cpu.Has(tier) && (instruction == "" || instruction == p.instruction) {
			return t.peak(p, budget), nil
		}
	}
	return Result{}, fmt.Errorf("no peak of instruction %q in the tier %s", instruction, tier)
}

// Peaks measures all instructions that bound kernels of the available tiers.
func (t *Team) Peaks(budget time.Duration) []Result {
	var list []Result
	for _, p := range peaks {
		if p.tier <= cpu.Best() {
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
