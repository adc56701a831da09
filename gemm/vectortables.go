//go:build (amd64 || arm64) && !purego

package gemm

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// A vectorTable holds the constants of float32 kernels for an element format: two operands of
// the decoding, repeated for each 16 bits or each 16 bytes; the factor left out of the decoded
// values; the largest supported E8M0 code; the values of 4-bit codes; and whether integers have
// scales in float32 instead of E8M0.
type vectorTable struct {
	first, second [64]byte
	unit          float32
	_             [12]byte
	largest       [16]byte
	values        [16]float32
	single        bool
}

// tableF32 and tableF32Int return the tables of float32 vector kernels, for sign-magnitude and
// for integer formats.
func tableF32(e *format.Scalar) unsafe.Pointer {
	if e.Integer {
		return nil
	}
	return unsafe.Pointer(vectorTables[e])
}

// tableE4M3 is tableF32 for E4M3 alone.
func tableE4M3(e *format.Scalar) unsafe.Pointer {
	if e != format.E4M3 {
		return nil
	}
	return tableF32(e)
}

func tableF32Int(e *format.Scalar) unsafe.Pointer {
	if !e.Integer {
		return nil
	}
	return unsafe.Pointer(vectorTables[e])
}

// tableF32Single is tableF32Int for scales in float32.
func tableF32Single(e *format.Scalar) unsafe.Pointer {
	if e != format.INT8 {
		return nil
	}
	return unsafe.Pointer(vectorTableSingle)
}

var vectorTableSingle = func() *vectorTable {
	t := *vectorTables[format.INT8]
	t.single = true
	return &t
}()

var vectorTables = func() map[*format.Scalar]*vectorTable {
	tables := map[*format.Scalar]*vectorTable{}
	for _, e := range []*format.Scalar{format.F32, format.BF16, format.E4M3, format.E5M2, format.INT8, format.E3M2, format.E2M3, format.E2M1} {
		t := &vectorTable{unit: vectorUnit(e)}
		tables[e] = t
		if e.Bits() > 8 {
			continue
		}
		for i := range t.largest {
			t.largest[i] = vectorMaxScale(e)
		}
		factor := 1 << (format.FP16.Mantissa - e.Mantissa) // shifts an 8-bit magnitude to that of a float16
		number := 1<<15 | (1<<(e.Bits()-1)-1)*factor       // the bits of a number in that position
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
		case 6: // at the top of a word; the upper half of a product shifts it down
			factor = 1 << (16 - e.Mantissa)
		}
		for i := 0; i < len(t.first); i += 2 {
			binary.LittleEndian.PutUint16(t.first[i:], uint16(factor))
			binary.LittleEndian.PutUint16(t.second[i:], uint16(number))
		}
	}
	return tables
}()

// tableInt8 returns the table of the int8 vector kernels for an element format.
func tableInt8(e *format.Scalar) unsafe.Pointer { return unsafe.Pointer(int8Tables[e]) }

type int8Table struct {
	integers  [64]byte // integer of each code plus the bias; for 8-bit codes, which are the integers, the bias alone
	low, span [16]byte // smallest supported E8M0 code and size of the range, repeated in each byte
}

var int8Tables = func() map[*format.Scalar]*int8Table {
	tables := map[*format.Scalar]*int8Table{}
	for e, form := range int8Forms {
		if b := e.StoredBits(); b == 4 && form.bias != 12 || b == 8 && form.bias != 128 {
			panic("gemm: kernels of internal/asm know the biases 12 of 4 bits and 128 of 8")
		}
		table := new(int8Table)
		for i := range table.integers {
			table.integers[i] = byte(form.bias)
			if e.StoredBits() < 8 {
				table.integers[i] += byte(int32(e.Decode(uint32(i)&(1<<e.StoredBits()-1)) / form.unit))
			}
		}
		for i := range table.low {
			table.low[i], table.span[i] = minExponent, maxExponent-minExponent
		}
		tables[e] = table
	}
	return tables
}()
