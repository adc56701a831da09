package quant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
)

// kernelTables returns the tests of the rows of each kernel table. A test calls a kernel
// directly, on guarded memory, at lengths about those of its units, and compares it with its Go
// twin.
func kernelTables() map[string][]rowTest {
	return map[string][]rowTest{
		"fusedKernels":         rowTests(fusedKernels, testFusedRow),
		"rowKernels":           rowTests(rowKernels, testRowKernel),
		"joinKernels":          rowTests(joinKernels, testJoinRow),
		"philoxKernels":        rowTests(philoxKernels, testPhiloxRow),
		"hadamardKernels":      rowTests(hadamardKernels, testHadamardRow),
		"encodeKernels":        rowTests(encodeKernels, testEncodeRow),
		"searchKernels":        rowTests(searchKernels, testSearchRow),
		"sumKernels":           rowTests(sumKernels, testSumRow),
		"decodeKernels":        rowTests(decodeKernels, testDecodeRow),
		"amaxKernels":          rowTests(amaxKernels, testAmaxRow),
		"maxKernels":           rowTests(maxKernels, testMaxRow),
		"spreadKernels":        rowTests(spreadKernels, testSpreadRow),
		"codesKernels":         rowTests(codesKernels, testCodesRow),
		"transposeFourKernels": rowTests(transposeFourKernels, testTransposeFourRow),
		"transposeKernels":     rowTests(transposeKernels, testTransposeRow),
		"maximaKernels":        rowTests(maximaKernels, testMaximaRow),
		"columnKernels":        rowTests(columnKernels, testColumnRow),
		"scaleKernels":         rowTests(scaleKernels, testScaleRow),
	}
}

// A rowTest is one row, what it needs, and its test.
type rowTest struct {
	needs cpu.Set
	run   func(f *fences, r *rand.Rand)
}

// rowTests are the tests of the rows of a table, whose field needs says what they need.
func rowTests[K any](table []K, test func(k *K, f *fences, r *rand.Rand)) []rowTest {
	var tests []rowTest
	for i := range table {
		k := &table[i]
		needs := cpu.Set(reflect.ValueOf(k).Elem().FieldByName("needs").Uint())
		tests = append(tests, rowTest{needs, func(f *fences, r *rand.Rand) { test(k, f, r) }})
	}
	return tests
}

// TestKernelRows runs the tests of all rows that this processor can run, with all other stages
// in Go.
func TestKernelRows(t *testing.T) {
	tables := kernelTables()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		for i, row := range tables[name] {
			if !cpu.Has(row.needs) {
				t.Logf("row %d of %s needs %s", i, name, row.needs)
				continue
			}
			t.Run(fmt.Sprintf("table=%s/row=%d/kernel=%s", name, i, cpu.TierOf(row.needs)), func(t *testing.T) {
				plainly(t, func() {
					for _, side := range []guard.Side{guard.Start, guard.End} {
						if side == guard.Start && i%slow.Stride(1, 2) > 0 {
							continue // kernels rather read past the end
						}
						f := &fences{T: t, side: side}
						row.run(f, rand.New(rand.NewPCG(21, uint64(i))))
						f.check()
					}
				})
			})
		}
	}
}

// TestKernelTables checks that each table of primitives.go has a test, and that the tiers of all
// rows are tiers of vectors, which the other tests run. TestRowsInOrder of the program has the order of rows.
func TestKernelTables(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "primitives.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	tested := kernelTables()
	for _, n := range names {
		if _, ok := tested[n]; !ok {
			t.Errorf("the rows of %s have no test: add it to kernelTables", n)
		}
	}
	for name, rows := range tested {
		for i, row := range rows {
			if tier := cpu.TierOf(row.needs); tier != tier.Vectors() {
				t.Errorf("row %d of %s is of the tier %s, which cputest.Vectors leaves out", i, name, tier)
			}
		}
	}
	if len(names) < len(tested) {
		t.Errorf("primitives.go declares %d tables, and %d are tested", len(names), len(tested))
	}
}

// fences is memory of one test, each piece guarded on one side, where the byte
// beyond faults, and with canaries on the other.
type fences struct {
	*testing.T
	side     guard.Side
	canaries [][]byte
}

const (
	canaryBytes = 64
	canary      = 0xa5
)

// bytes returns n bytes.
func (f *fences) bytes(n int) []byte {
	f.Helper()
	b := guard.Bytes(f, n+canaryBytes, f.side)
	data, beyond := b[canaryBytes:], b[:canaryBytes]
	if f.side == guard.Start {
		data, beyond = b[:n:n], b[n:]
	}
	for i := range beyond {
		beyond[i] = canary
	}
	f.canaries = append(f.canaries, beyond)
	return data
}

// check reports canaries that were overwritten.
func (f *fences) check() {
	f.Helper()
	for i, c := range f.canaries {
		if j := slices.IndexFunc(c, func(b byte) bool { return b != canary }); j >= 0 {
			f.Fatalf("byte %d beyond piece %d of the memory was overwritten, with guards at side %d", j, i, f.side)
		}
	}
}

// fenced returns a copy of x in guarded memory.
func fenced[E byte | uint32 | float32 | float64](f *fences, x []E) []E {
	f.Helper()
	if len(x) == 0 {
		return nil
	}
	b := f.bytes(len(x) * int(unsafe.Sizeof(x[0])))
	c := unsafe.Slice((*E)(unsafe.Pointer(&b[0])), len(x))
	copy(c, x)
	return c
}

// rowLengths are about the units of kernels, and wider ones.
var rowLengths = []int{1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100, 127, 128, 129, 200, 513, 1030}

// ordinary returns n numbers about 1, some of them zero, all of which kernels support.
func ordinary(n int, r *rand.Rand) []float32 {
	x := make([]float32, n)
	for i := range x {
		if r.IntN(16) > 0 {
			x[i] = float32(r.NormFloat64())
		}
	}
	return x
}

// positive returns n factors.
func positive(n int, r *rand.Rand) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Exp(3 * r.NormFloat64()))
	}
	return x
}

// bf16Bytes returns the upper halves of x, which they replace.
func bf16Bytes(x []float32) []byte {
	b := make([]byte, 2*len(x))
	for i, v := range x {
		bits := math.Float32bits(v) >> 16
		b[2*i], b[2*i+1] = byte(bits), byte(bits>>8)
		x[i] = math.Float32frombits(bits << 16)
	}
	return b
}

// elementBytes returns x as elements of a source, as bf16Bytes does if they are BF16.
func elementBytes(x []float32, bf16 bool) []byte {
	if bf16 {
		return bf16Bytes(x)
	}
	return floatBytes32(x)
}

// floatBytes32 returns the memory of x.
func floatBytes32(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// signedElements returns the element formats with the given number of stored bits that kernels
// encode by magnitude.
func signedElements(bits int) (list []*format.Scalar) {
	for _, e := range format.All() {
		if q := (Quantizer{Format: Format{Element: e}}); e.Bits() <= 8 && e.StoredBits() == bits && q.signMagnitude() {
			list = append(list, e)
		}
	}
	return list
}

// requireSame fails where got is not want, a NaN being any.
func requireSame(f *fences, what string, got, want []float32) {
	f.Helper()
	for i, w := range want {
		if g := got[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			f.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), g, w)
		}
	}
}

func requireBytes(f *fences, what string, got, want []byte) {
	f.Helper()
	if i := firstDifference(got, want); i >= 0 {
		f.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
	}
}
