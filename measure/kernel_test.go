package measure

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
)

// edges are values with special cases in the sums, and extreme float32 values.
var edges = []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.SmallestNonzeroFloat32, -0x1p-130, math.MaxFloat32, -math.MaxFloat32,
	448, 0x1p-60}

// element returns a random element: often an edge, rarely a non-finite one.
func element(random *rand.Rand, nonFinite bool) float32 {
	switch n := random.IntN(40); {
	case n == 0 && nonFinite:
		return []float32{nan, inf, -inf}[random.IntN(3)]
	case n < 10:
		return edges[random.IntN(len(edges))]
	}
	return float32(random.NormFloat64() * math.Exp2(float64(random.IntN(40)-20)))
}

// TestKernels checks that every kernel gives the bits of addBlock and reads only its rows.
func TestKernels(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for trial := range 300 {
		n, extent := random.IntN(200), []int{0, 16, 32, 48, 128, 8, 1000}[trial%7]
		if trial%10 == 0 {
			n += 40 * kernelBlock * kernelCall / 32
		}
		nonFinite := trial%3 == 0
		raw, got := guard.Bytes(t, 2*n, guard.End), floats(guard.Bytes(t, 4*n, guard.End), n)
		want := floats(guard.Bytes(t, 4*n, guard.End), n)
		for i := range n {
			bits := math.Float32bits(element(random, nonFinite)) &^ 0xffff
			want[i] = math.Float32frombits(bits)
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(bits>>16))
			got[i] = element(random, nonFinite)
			if random.IntN(3) > 0 {
				got[i] = want[i] * (1 + float32(random.IntN(5)-2)/16)
			}
			// Exact blocks, alone and in groups, of no, usual, small and large values, and errors of zeros.
			if trial%4 == 2 && i/kernelBlock%8 < trial%9 {
				kind := i / 128 % 5
				bits = math.Float32bits(float32(random.NormFloat64())*[]float32{0, 1, 0x1p-60, 0x1p60, 0}[kind]) &^ 0xffff
				want[i] = math.Float32frombits(bits)
				binary.LittleEndian.PutUint16(raw[2*i:], uint16(bits>>16))
				got[i] = want[i] + []float32{4: 0x1p-90}[kind]
			}
		}
		var limits []float32
		if extent > 0 {
			for range (n + extent - 1) / extent {
				limits = append(limits, element(random, true))
			}
		}
		sums := func(row Row, tier cpu.Tier) Accumulator {
			if err := cpu.Force(tier); err != nil {
				t.Fatal(err)
			}
			a := New(32)
			row.Got, row.Limits, row.Extent = got, limits, extent
			a.AddRow(row)
			a.AddRow(row)
			return *a
		}
		cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
			plain := sums(Row{Want: want}, cpu.Plain)
			for name, row := range map[string]Row{"f32": {Want: want}, "bf16": {WantBF16: raw}} {
				if a := sums(row, tier); bits(a) != bits(plain) {
					t.Errorf("trial %d, %d elements of %s, limits for %d:\n%+v\nplain:\n%+v", trial, n, name, extent, a, plain)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

func floats(b []byte, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// bits returns the bits of all sums.
func bits(a Accumulator) string {
	data, err := a.MarshalBinary()
	if err != nil {
		panic(err) // cannot fail for numbers of fixed size
	}
	return fmt.Sprintf("%x", data)
}

func BenchmarkAddRow(b *testing.B) {
	const n = 1 << 16
	want, got, raw := make([]float32, n), make([]float32, n), make([]byte, 2*n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		bits := math.Float32bits(float32(random.NormFloat64())) &^ 0xffff
		want[i] = math.Float32frombits(bits)
		got[i] = want[i] * (1 + float32(random.IntN(5)-2)/16)
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(bits>>16))
	}
	limits := make([]float32, n/32)
	for _, tier := range cpu.Tiers() {
		for name, row := range map[string]Row{"f32": {Want: want}, "bf16": {WantBF16: raw}} {
			b.Run(fmt.Sprintf("kernel=%v/source=%s", tier, name), func(b *testing.B) {
				best := cpu.Best()
				if err := cpu.Force(tier); err != nil {
					b.Fatal(err)
				}
				defer func() { _ = cpu.Force(best) }()
				row.Got, row.Limits, row.Extent = got, limits, 32
				a := New(32)
				for b.Loop() {
					a.AddRow(row)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}
