package gguf

import (
	"fmt"
	"math"
	"math/bits"
)

// A Type is the element type of a tensor, with ggml's number (enum ggml_type).
type Type uint32

// Types whose values this module reads or writes. Of others it knows only name and size.
const (
	F32   Type = 0
	F16   Type = 1
	Q8_0  Type = 8
	BF16  Type = 30
	MXFP4 Type = 39
	NVFP4 Type = 40
)

// types lists the name and the elements and bytes of a block by number. Missing numbers are
// obsolete or newer than this table.
var types = map[Type]struct {
	name            string
	elements, bytes int64
}{
	F32:   {"F32", 1, 4},
	F16:   {"F16", 1, 2},
	2:     {"Q4_0", 32, 18},
	3:     {"Q4_1", 32, 20},
	6:     {"Q5_0", 32, 22},
	7:     {"Q5_1", 32, 24},
	Q8_0:  {"Q8_0", 32, 34},
	9:     {"Q8_1", 32, 36},
	10:    {"Q2_K", 256, 84},
	11:    {"Q3_K", 256, 110},
	12:    {"Q4_K", 256, 144},
	13:    {"Q5_K", 256, 176},
	14:    {"Q6_K", 256, 210},
	15:    {"Q8_K", 256, 292},
	16:    {"IQ2_XXS", 256, 66},
	17:    {"IQ2_XS", 256, 74},
	18:    {"IQ3_XXS", 256, 98},
	19:    {"IQ1_S", 256, 50},
	20:    {"IQ4_NL", 32, 18},
	21:    {"IQ3_S", 256, 110},
	22:    {"IQ2_S", 256, 82},
	23:    {"IQ4_XS", 256, 136},
	24:    {"I8", 1, 1},
	25:    {"I16", 1, 2},
	26:    {"I32", 1, 4},
	27:    {"I64", 1, 8},
	28:    {"F64", 1, 8},
	29:    {"IQ1_M", 256, 56},
	BF16:  {"BF16", 1, 2},
	34:    {"TQ1_0", 256, 54},
	35:    {"TQ2_0", 256, 66},
	MXFP4: {"MXFP4", 32, 17},
	NVFP4: {"NVFP4", 64, 36},
	41:    {"Q1_0", 128, 18},
}

func (t Type) valid() bool { _, ok := types[t]; return ok }

// String returns ggml's name of the type.
func (t Type) String() string {
	if !t.valid() {
		return fmt.Sprintf("Type(%d)", uint32(t))
	}
	return types[t].name
}

// Block returns the elements and the bytes of a block, zeros for an unknown type. Rows are
// whole blocks.
func (t Type) Block() (elements, bytes int64) { return types[t].elements, types[t].bytes }

// size returns the bytes of a tensor, or the problem if the shape is invalid. Dimensions must
// not be negative.
func (t Type) size(shape []int64) (n int64, problem string) {
	elements, bytes := t.Block()
	row := int64(1)
	if len(shape) > 0 {
		row = shape[len(shape)-1]
	}
	if row%elements != 0 {
		return 0, fmt.Sprintf("rows of %d elements are not whole blocks of %s, which have %d", row, t, elements)
	}
	total := uint64(1)
	for _, d := range shape {
		hi, lo := bits.Mul64(total, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Sprintf("shape %v overflows 63 bits", shape)
		}
		total = lo
	}
	hi, lo := bits.Mul64(total/uint64(elements), uint64(bytes))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Sprintf("shape %v of %s overflows 63 bits", shape, t)
	}
	return int64(lo), ""
}
