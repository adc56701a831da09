package format_test

import (
	"math"
	"sort"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
)

// TestSweep encodes float32 patterns in numeric order. Codes grow with the input, so the oracle
// only needs the first pattern of each code, found by bisection over the midpoints of the
// standard's values.
//
// By default the test steps through the patterns by a prime, a larger one with -short. For all
// patterns, run
// go test ./format -run TestSweep -full -timeout 2h.
func TestSweep(t *testing.T) {
	step := uint32(2003)
	switch {
	case *slow.FullRun:
		step = 1
	case testing.Short():
		step = 20011
	}
	for _, s := range specs {
		roundings := []format.Rounding{format.NearestEven}
		if s.format == format.E8M0 {
			roundings = append(roundings, format.Up, format.TowardZero) // the scale conversions
		}
		for _, r := range roundings {
			t.Run("format="+s.format.Name+"/rounding="+r.String(), func(t *testing.T) {
				t.Parallel()
				sweep(t, s, r, step)
			})
		}
	}
}

func sweep(t *testing.T, s *spec, r format.Rounding, step uint32) {
	const inf = 0x7f800000
	var starts []uint32
	if s.bits < 32 {
		starts = stairs(s, r)
	}
	nan := s.firstNaN
	switch {
	case s.nanZero:
		nan = s.signBit()
	case nan == 0:
		nan = s.maxCode
	default: // the NaN of all ones
		for s.signBit() != 0 && nan|nan+1 < s.signBit() {
			nan |= nan + 1
		}
	}
	c := format.Conversion{Rounding: r}
	code := uint32(0)
	for bits := uint32(0); bits < 1<<31; bits += step {
		positive, negative := nan, nan
		if bits <= inf {
			for int(code) < len(starts) && bits >= starts[code] {
				code++
			}
			if s.bits == 32 {
				code = min(bits, s.maxCode)
			}
			positive, negative = code, s.sign(code, true)
			if s.lowest && float64(math.Float32frombits(bits)) >= s.max+s.min/2 { // the tie goes to the even code
				negative = s.signBit()
			}
		}
		if got := s.format.EncodeWith(math.Float32frombits(bits), c, 0); got != positive {
			t.Fatalf("%#08x becomes %#x, want %#x", bits, got, positive)
		}
		if got := s.format.EncodeWith(math.Float32frombits(bits|1<<31), c, 0); got != negative {
			t.Fatalf("%#08x becomes %#x, want %#x", bits|1<<31, got, negative)
		}
	}
}

// stairs returns the first float32 pattern that encodes to code i+1, for each i.
func stairs(s *spec, r format.Rounding) []uint32 {
	values, _ := s.grid()
	starts := make([]uint32, len(values)-1)
	for i := range starts {
		low, high := values[i], values[i+1]
		middle := (low + high) / 2
		starts[i] = uint32(sort.Search(1<<31, func(bits int) bool {
			x := float64(math.Float32frombits(uint32(bits)))
			switch {
			case x != x:
				return true
			case r == format.Up:
				return x > low
			case r == format.TowardZero:
				return x >= high
			}
			return x > middle || x == middle && s.tieUp(i)
		}))
	}
	return starts
}
