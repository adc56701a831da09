package mma_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// fastUnits returns the units for which Mul has kernels.
func fastUnits() []*mma.Unit {
	var units []*mma.Unit
	for _, m := range mma.Models() {
		for _, u := range m.Units() {
			if u.Fast() {
				units = append(units, u)
			}
		}
	}
	return units
}

// onTiers calls f for every tier of vectors that this processor has.
func onTiers(t *testing.T, f func(tier cpu.Tier)) {
	t.Helper()
	defer func(best cpu.Tier) {
		if err := cpu.Force(best); err != nil {
			t.Error(err)
		}
	}(cpu.Best())
	for _, tier := range cpu.Tiers() {
		if tier != tier.Vectors() {
			continue
		}
		if err := cpu.Force(tier); err != nil {
			t.Fatal(err)
		}
		f(tier)
	}
}

// matrices returns the rows of two matrices and accumulators. Rows i of both are one case, so
// that those whose products cancel meet; every other pair mixes two cases.
func matrices(u *mma.Unit, m, n, k int, source *mmatest.Source, plain bool) (a, b mma.Matrix, c []float32) {
	a, b = mma.Matrix{Rows: m, K: k}, mma.Matrix{Rows: n, K: k}
	c = make([]float32, m*n)
	for i := range max(m, n) {
		one := mmatest.Hard(u, k, source)
		if plain {
			one = mmatest.Plain(u, k, source)
		}
		if i < m {
			a.Codes, a.Scales = append(a.Codes, narrow(u.A, one.A)...), append(a.Scales, one.ScaleA...)
		}
		if i < n {
			b.Codes, b.Scales = append(b.Codes, narrow(u.B, one.B)...), append(b.Scales, one.ScaleB...)
		}
	}
	const drawn = 256 // more repeat, with other rows and columns
	for i := range c {
		if i >= drawn {
			c[i] = c[i-drawn]
			continue
		}
		one := mmatest.Hard(u, u.K, source)
		if plain {
			one = mmatest.Plain(u, u.K, source)
		}
		c[i] = math.Float32frombits(uint32(one.C))
	}
	return a, b, c
}

// narrow returns codes as they are in memory.
func narrow(t *mma.Type, codes []uint64) []byte {
	var b []byte
	for _, c := range codes {
		b = append(b, binary.LittleEndian.AppendUint64(nil, c)[:t.Bytes]...)
	}
	return b
}

// wide is the inverse of narrow.
func wide(t *mma.Type, codes []byte) []uint64 {
	w := make([]uint64, len(codes)/t.Bytes)
	for i := range w {
		var word [8]byte
		copy(word[:], codes[i*t.Bytes:][:t.Bytes])
		w[i] = binary.LittleEndian.Uint64(word[:])
	}
	return w
}

// part returns elements from to to of row i of an operand of type t.
func part(t *mma.Type, m mma.Matrix, i, from, to int) []uint64 {
	return wide(t, m.Codes[(i*m.K+from)*t.Bytes:(i*m.K+to)*t.Bytes])
}

// compare checks Mul on every tier against Dot, bit by bit, and returns the number of results.
func compare(t *testing.T, u *mma.Unit, a, b mma.Matrix, c []float32) int {
	t.Helper()
	want := make([]uint64, len(c))
	s := u.Scales(a.K)
	for i := range a.Rows {
		x := part(u.A, a, i, 0, a.K)
		for j := range b.Rows {
			at := i*b.Rows + j
			want[at] = u.Dot(x, part(u.B, b, j, 0, b.K), uint64(math.Float32bits(c[at])), a.Scales[i*s:][:s], b.Scales[j*s:][:s])
		}
	}
	onTiers(t, func(tier cpu.Tier) {
		d := slices.Clone(c)
		if err := u.Mul(d, a, b); err != nil {
			t.Fatal(err)
		}
		for at, v := range d {
			if got := math.Float32bits(v); uint64(got) != want[at] {
				t.Fatalf("%s %s×%s, tier %s, row %d, column %d, C = %#08x: got %#08x, want %#08x", u.Model, u.A, u.B, tier, at/b.Rows, at%b.Rows,
					math.Float32bits(c[at]), got, want[at])
			}
		}
	})
	return len(c)
}

// TestMul compares Mul with Dot for every unit with kernels, on hard and plain operands, chains
// of instructions, and shapes around a panel.
func TestMul(t *testing.T) {
	for _, u := range fastUnits() {
		t.Run(fmt.Sprintf("%s/%s×%s", u.Model, u.A, u.B), func(t *testing.T) {
			source := mmatest.Source(uint64(u.K) + uint64(len(u.A.Name))<<8 + uint64(len(u.B.Name))<<16)
			want := 1500
			switch {
			case *slow.FullRun:
				want = 1_000_000
			case testing.Short():
				want = 300 / slow.Stride(1, 5)
			}
			for done, round := 0, 0; done < want; round++ {
				m, n, k := 5+round%7, 1+round*29%150, u.K*(1+round%3)
				if *slow.FullRun {
					m, n = 64, 64+round%3
				}
				a, b, c := matrices(u, m, n, k, &source, round%4 == 3)
				done += compare(t, u, a, b, c)
			}
		})
	}
}

// TestMulZeros compares Mul with Dot where all or most products are zero, under zero, small and
// large scales, with accumulators of every exponent: E is then that of C, or of a zero.
func TestMulZeros(t *testing.T) {
	seen := map[string]bool{}
	for _, u := range fastUnits() {
		if u.A != u.B && !*slow.FullRun || testing.Short() && seen[u.Rule()] {
			continue
		}
		seen[u.Rule()] = true
		if len(seen)%slow.Stride(1, 4) > 0 {
			continue
		}
		const n = 512
		k := 2 * u.K
		code := func(v float32) uint64 { return uint64(u.A.Scalar.Encode(v)) }
		rows := [][]uint64{make([]uint64, k), make([]uint64, k), make([]uint64, k), make([]uint64, k), nil}
		rows[1][k-1] = 1 // the smallest subnormal
		rows[2][0] = code(1)
		for i := range rows[3] {
			rows[3][i] = code(float32(i%3 - 1))
		}
		rows[4] = slices.Repeat([]uint64{code(-1)}, k) // under a zero scale, -0
		scales := []byte{0, 1, 0x38, 112, 126, 134}    // none is NaN
		a, b := mma.Matrix{Rows: len(rows) * len(scales), K: k}, mma.Matrix{Rows: n, K: k}
		for i := range a.Rows {
			a.Codes = append(a.Codes, narrow(u.A, rows[i%len(rows)])...)
			for range u.Scales(k) {
				a.Scales = append(a.Scales, scales[i/len(rows)])
			}
		}
		for j := range n {
			for x := range k {
				b.Codes = append(b.Codes, narrow(u.B, []uint64{uint64(u.B.Scalar.Encode(float32((j + x) % 4 / 3)))})...) // one of four is 1
			}
			for s := range u.Scales(k) {
				b.Scales = append(b.Scales, scales[(j+s)%len(scales)])
			}
		}
		c := make([]float32, a.Rows*n)
		for i := range c {
			j := uint32(i % n)
			c[i] = math.Float32frombits(j<<31 | j>>1<<23 | 0x5a5a5*(uint32(i/n)&1))
		}
		compare(t, u, a, b, c)
	}
}

// TestMulSubnormals compares Mul with Dot on AMD's units, whose rules for subnormals and signs of
// zeros differ: products and sums around 2^-126, and products of -0. Mul leaves the arithmetic of the
// processor as it is.
func TestMulSubnormals(t *testing.T) {
	values := []float64{0, math.Copysign(0, -1), 0x1p-63, -0x1p-63, 0x1.8p-63, -0x1p-149, -1}
	accumulators := []float64{0, math.Copysign(0, -1), 0x1p-149, -0x1p-127, 0x1p-126, 0x1.8p-126, -0x1.8p-126, 1}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, u := range fastUnits() {
		if !strings.HasPrefix(u.Model.Name, "cdna") || u.A != u.B {
			continue
		}
		u, err := u.Model.Unit(mma.Options{A: u.A, K: slices.Min(u.Ks())}) // one group, where possible
		if err != nil {
			t.Fatal(err)
		}
		encode := func(v float64) uint64 {
			return uint64(u.A.Scalar.EncodeWith(float32(v), format.Conversion{}, 0))
		}
		a, b := mma.Matrix{K: u.K}, mma.Matrix{K: u.K}
		var c []float32
		add := func(m *mma.Matrix, x, y, others float64) {
			row := slices.Repeat([]uint64{encode(others)}, u.K)
			row[0], row[min(1, u.K-1)] = encode(x), encode(y)
			m.Rows++
			m.Codes = append(m.Codes, narrow(u.A, row)...)
			m.Scales = append(m.Scales, bytes.Repeat([]byte{127}, u.Scales(u.K))...)
		}
		for _, x := range values {
			for _, y := range values {
				add(&a, x, y, 0)
				for range accumulators {
					add(&b, x, y, -1)
				}
			}
		}
		for range a.Rows * b.Rows {
			c = append(c, float32(accumulators[len(c)%len(accumulators)]))
		}
		compare(t, u, a, b, c)
		if half := math.Float32frombits(uint32(u.K)<<8) / 2; half == 0 {
			t.Errorf("%s: after Mul, float32 arithmetic flushes subnormals", u.Model)
		}
	}
}

// TestMulModels checks that every unit with results of f32 has kernels.
func TestMulModels(t *testing.T) {
	for _, m := range mma.Models() {
		for _, u := range m.Units() {
			if want := u.Out.Name == "f32"; u.Fast() != want {
				t.Errorf("%s %s×%s to %s: got Fast() = %v, want %v", m, u.A, u.B, u.Out, u.Fast(), want)
			}
		}
	}
}

func TestMulErrors(t *testing.T) {
	f16 := unit(t, "ampere-mma", "f16", "f32", "-")
	fp8 := unit(t, "hopper-wgmma", "e4m3", "f32", "-")
	half := unit(t, "hopper-wgmma", "e4m3", "f16", "-")
	scaled := unit(t, "blackwell-mxf8f6f4", "e4m3", "f32", "ue8m0")
	row := func(k int) mma.Matrix { return mma.Matrix{Rows: 1, K: k, Codes: make([]byte, k)} }
	for _, tc := range []struct {
		u    *mma.Unit
		d    int
		a, b mma.Matrix
		want string
	}{
		{f16, 1, row(16), row(16), "got 16 bytes of codes and 0 scales of 1×16, want 32 and 0"},
		{half, 1, row(32), row(32), "want results of f32: use Dot"},
		{fp8, 1, row(32), row(64), "got K of 32 and 64, want the same multiple of 32"},
		{fp8, 1, row(33), row(33), "got K of 33 and 33"},
		{fp8, 2, row(32), row(32), "got 2 results, want 1×1"},
		{fp8, 1, mma.Matrix{Rows: 1, K: 32, Codes: make([]byte, 31)}, row(32), "got 31 bytes of codes and 0 scales of 1×32, want 32 and 0"},
		{scaled, 1, row(32), row(32), "got 32 bytes of codes and 0 scales of 1×32, want 32 and 1"},
		{fp8, 0, mma.Matrix{Rows: 1 << 32}, mma.Matrix{Rows: 1 << 32}, "got 0 results, want 4294967296×4294967296"},
		{fp8, 1, mma.Matrix{Rows: 1, K: 1 << 62}, mma.Matrix{Rows: 1, K: 1 << 62}, "got 0 bytes of codes"},
		{f16, 1, mma.Matrix{Rows: 1, K: 1 << 62}, mma.Matrix{Rows: 1, K: 1 << 62}, "got 0 bytes of codes"},
	} {
		if err := tc.u.Mul(make([]float32, tc.d), tc.a, tc.b); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

// BenchmarkMul measures products of 256×256×1024, and Dot beside them.
func BenchmarkMul(b *testing.B) {
	for _, name := range []string{"hopper-wgmma e4m3 -", "hopper-mma e4m3 -", "ada-mma e4m3 -", "blackwell-f8f6f4 e5m2 -",
		"blackwell-mxf8f6f4 e4m3 ue8m0", "blackwell-mxf4 e2m1 ue8m0", "blackwell-mxf4nvf4 e2m1 ue4m3", "hopper-wgmma bf16 -",
		"hopper-wgmma f16 -", "ampere-mma bf16 -", "blackwell-tf32 tf32 -",
		"cdna1-mfma f32 -", "cdna1-mfma bf16 -", "cdna1-mfma f16 -", "cdna2-mfma bf16 -", "cdna2-mfma-1k bf16 -", "cdna3-mfma bf16 -",
		"cdna3-mfma tf32 -", "cdna3-mfma e4m3fnuz -", "cdna4-mfma-scale e4m3 ue8m0"} {
		f := strings.Fields(name)
		u := unit(b, f[0], f[1], "f32", f[2])
		for _, tier := range cpu.Tiers() {
			if tier == cpu.AMX {
				continue
			}
			b.Run(fmt.Sprintf("%s/%s/tier=%s", f[0], f[1], tier), func(b *testing.B) {
				best := cpu.Best()
				if err := cpu.Force(tier); err != nil {
					b.Fatal(err)
				}
				defer func() { _ = cpu.Force(best) }() // it was forced before
				benchmarkMul(b, u)
			})
		}
	}
}

func benchmarkMul(b *testing.B, u *mma.Unit) {
	source := mmatest.Source(1)
	const m, n, k = 256, 256, 1024
	x, y, c := matrices(u, m, n, k, &source, true)
	if u.A.Bytes > 1 { // plain cases have all exponents
		random := rand.New(rand.NewPCG(1, 1))
		for _, codes := range [][]byte{x.Codes, y.Codes} {
			for i := 0; i < len(codes); i += u.A.Bytes {
				copy(codes[i:i+u.A.Bytes], narrow(u.A, []uint64{uint64(u.A.Scalar.Encode(float32(random.NormFloat64())))}))
			}
		}
		clear(c)
	}
	d := make([]float32, len(c))
	for b.Loop() {
		if err := u.Mul(d, x, y); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2*m*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
