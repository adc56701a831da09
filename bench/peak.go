package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A peak is an instruction whose rate bounds kernels, and a function that does
// nothing else, all in registers.
type peak struct {
	instruction string
	registers   string
	tier        cpu.Tier
	unit        Unit
	work        float64 // operations in a round
	run         func(rounds int, operands unsafe.Pointer)
}

// String names the peak: VDPBF16PS zmm.
func (p peak) String() string { return strings.TrimSpace(p.instruction + " " + p.registers) }

// plainPeak is float32 multiplications and additions as plain Go does them, one
// at a time.
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

// Peaks returns the names of the instructions whose peak this processor has, by
// which Peak takes them, best tier first.
func Peaks() []string {
	var list []string
	for _, p := range peaks {
		if p.tier <= cpu.Best() {
			list = append(list, p.String())
		}
	}
	return list
}

// Peak measures an instruction on registers alone: the one whose name begins as
// given. It fails where this processor has none.
func (t *Team) Peak(instruction string, budget time.Duration) (Result, error) {
	for _, p := range peaks {
		if p.tier > cpu.Tiers()[0] || !strings.HasPrefix(p.String(), instruction) {
			continue
		}
		operands := make([]float32, 32)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range operands {
			operands[i] = random.Float32() - 0.5 // so that as many bits change as in earnest
		}
		const rounds = 1 << 14
		return t.limit("peak", p.unit, float64(t.Threads())*rounds*p.work, budget, []try{{p.String(), func(int, int) {
			p.run(rounds, unsafe.Pointer(&operands[0]))
		}}}), nil
	}
	return Result{}, fmt.Errorf("there is no peak of %q to measure: this processor has %s", instruction, strings.Join(Peaks(), ", "))
}
