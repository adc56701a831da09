//go:build !purego

package gemm

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// A vectorTable is what kernels of float32 have for the elements of a format: two
// constants of the arithmetic, for each 16 bits or each 16 bytes the same; the unit of
// what becomes of the codes; the largest E8M0 code; and the values of codes of 4 bits.
type vectorTable struct {
	first, second [64]byte
	unit          float32
	_             [12]byte
	largest       [16]byte
	values        [16]float32
}

// tableF32 and tableF32Int are the tables of vector kernels of float32, for numbers of
// sign and magnitude and for integers.
func tableF32(e *format.Scalar) unsafe.Pointer {
	if e.Integer {
		return nil
	}
	return unsafe.Pointer(vectorTables[e])
}

func tableF32Int(e *format.Scalar) unsafe.Pointer {
	if !e.Integer {
		return nil
	}
	return unsafe.Pointer(vectorTables[e])
}

var vectorTables = func() map[*format.Scalar]*vectorTable {
	tables := map[*format.Scalar]*vectorTable{}
	for _, e := range []*format.Scalar{format.F32, format.BF16, format.E4M3, format.E5M2, format.INT8, format.E3M2, format.E2M3, format.E2M1} {
		t := &vectorTable{unit: vectorUnit(e)}
		tables[e] = t
		if e.Bits() > 8 {
			continue
		}
		for i := range t.largest {
			t.largest[i] = vectorLargest(e)
		}
		factor := 1 << (format.FP16.Mantissa - e.Mantissa) // takes the magnitude of 8 bits to a float16's
		number := 1<<15 | (1<<(e.Bits()-1)-1)*factor       // the bits of it that a number has
		switch e.StoredBits() {
		case 4: // the third and the highest byte of each value
			for i := range t.values {
				t.values[i] = e.Decode(uint32(i))
			}
			for i := range t.first {
				value := math.Float32bits(e.Decode(uint32(i % 16)))
				t.first[i], t.second[i] = byte(value>>16), byte(value>>24)
			}
			continue
		case 6: // which stands at the top of a word, and goes down by the upper half of a product
			factor = 1 << (16 - e.Mantissa)
		}
		for i := 0; i < len(t.first); i += 2 {
			binary.LittleEndian.PutUint16(t.first[i:], uint16(factor))
			binary.LittleEndian.PutUint16(t.second[i:], uint16(number))
		}
	}
	return tables
}()
