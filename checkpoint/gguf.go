package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// ggufConvention is the layout of blocks in llama.cpp: scales interleaved with the codes, and the
// global scale, which multiplies products, in a separate tensor. Package llamacpp has the rest of
// a GGUF file.
var ggufConvention = Convention{
	Name: "gguf",
	Doc:  "llama.cpp and Ollama: one GGUF file, of the Llama family, with its tokenizer",
	schemes: []scheme{
		{name: "MXFP4", format: quant.MXFP4, interleaved: &ggml.BlockMXFP4},
		{name: "NVFP4", format: quant.NVFP4, interleaved: &ggml.BlockNVFP4, global: ".scale", scalar: []int64{1}},
		{name: "Q8_0", format: quant.Q8_0, interleaved: &ggml.BlockQ80},
	},
	oneFile:     true,
	unscaled:    append([]quant.Format{quant.BF16}, encodedFormats...),
	mixes:       true,
	linearOnly:  true,
	wholeBlocks: true,
}

// encodedFormats are the types of GGUF files beside block formats that package ggml encodes, by their names in lower case: FP32 values,
// in blocks of the columns of rows.
var encodedFormats = func() (all []quant.Format) {
	for _, name := range []string{"Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K"} {
		q, err := ggml.LookupQuant(name)
		if err != nil {
			panic(err) // of the list
		}
		all = append(all, quant.Format{Name: strings.ToLower(name), Element: format.F32, Block: quant.Shape{Rows: 1, Cols: q.Elements}})
	}
	return all
}()

// LookupFormat returns the format of a name: a block format, or a type of GGUF files that package ggml encodes, such as q4_k.
func LookupFormat(name string) (quant.Format, error) {
	if f, err := quant.Lookup(name); err == nil {
		return f, nil
	}
	var names []string
	for _, f := range slices.Concat(quant.Formats(), encodedFormats) {
		if strings.EqualFold(f.Name, name) {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return quant.Format{}, naming.Unknown("block format", name, names)
}

// GGUF returns the convention of llama.cpp's files.
func GGUF() *Convention { return &ggufConvention }

// Struct returns the structs of codes and scales in which the convention stores f. ok is false if
// it stores them in separate tensors.
func (c *Convention) Struct(f quant.Format) (ggml.Struct, bool) {
	if c == nil {
		return ggml.Struct{}, false
	}
	s := c.scheme(f)
	if s == nil || s.interleaved == nil {
		return ggml.Struct{}, false
	}
	return *s.interleaved, true
}

// Interleaved returns the codes and scales of t as structs. It uses buf if that is large enough.
func Interleaved(buf []byte, s ggml.Struct, t *quant.Tensor) []byte {
	scales := t.Scales
	for _, scale := range t.Scales32 {
		scales = binary.LittleEndian.AppendUint16(scales,
			uint16(format.FP16.EncodeWith(scale*integer, format.Conversion{Overflow: format.NonSaturating}, 0)))
	}
	n := len(scales) / (s.Blocks * s.ScaleBytes) * s.Bytes()
	buf = slices.Grow(buf[:0], n)[:n]
	s.Interleave(buf, t.Codes, scales)
	return buf
}

// integer is the value of the code 1 of INT8: the scale of a struct multiplies integers.
var integer = format.INT8.Smallest()

// FromHalves sets dst to the FP32 scales of INT8 codes for FP16 scales of integers. dst has twice the
// bytes of halves.
func FromHalves(dst, halves []byte) {
	for i := 0; i < len(halves); i += 2 {
		scale := format.FP16.Decode(uint32(binary.LittleEndian.Uint16(halves[i:]))) / integer
		binary.LittleEndian.PutUint32(dst[2*i:], math.Float32bits(scale))
	}
}
