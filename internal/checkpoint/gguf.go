package checkpoint

import (
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/ggml"
	"github.com/microscale-go/microscale/quant"
)

// ggufConvention is how llama.cpp stores blocks: scales between the codes, and a
// global scale, by which products are multiplied, in a tensor of its own. It is
// for files of the container GGUF alone: package llamacpp says what else is in them.
var ggufConvention = Convention{
	Name: "gguf",
	Doc:  "llama.cpp and Ollama: one GGUF file, of the Llama family, with its tokenizer",
	schemes: []scheme{
		{name: "MXFP4", format: quant.MXFP4, interleaved: &ggml.BlockMXFP4},
		{name: "NVFP4", format: quant.NVFP4, interleaved: &ggml.BlockNVFP4, global: ".scale", scalar: []int64{1}},
		{name: "Q8_0", format: quant.Q8_0, interleaved: &ggml.BlockQ80},
	},
	gguf:        true,
	linearOnly:  true,
	wholeBlocks: true,
}

// GGUF returns the convention of llama.cpp's files.
func GGUF() *Convention { return &ggufConvention }

// InGGUF reports whether the convention stores weights in a GGUF file. It is false for nil.
func (c *Convention) InGGUF() bool { return c != nil && c.gguf }

// Struct returns the structs of codes and scales in which the convention stores f;
// ok is false where it stores them in tensors of their own.
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

// Interleaved returns the codes and scales of t as structs.
func Interleaved(s ggml.Struct, t *quant.Tensor) []byte {
	scales := t.Scales
	for _, scale := range t.Scales32 {
		scales = binary.LittleEndian.AppendUint16(scales, uint16(format.FP16.EncodeWith(scale*integer, format.Conversion{Overflow: format.NonSaturating}, 0)))
	}
	out := make([]byte, len(scales)/(s.Blocks*s.ScaleBytes)*s.Bytes())
	s.Interleave(out, t.Codes, scales)
	return out
}

// integer is what INT8 codes are times: a struct's scale is of integers.
var integer = format.INT8.Smallest()

// FromHalves returns FP16 scales of integers as the FP32 scales of INT8 codes.
func FromHalves(halves []byte) []byte {
	scales := make([]byte, 0, 2*len(halves))
	for i := 0; i < len(halves); i += 2 {
		scale := format.FP16.Decode(uint32(binary.LittleEndian.Uint16(halves[i:]))) / integer
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(scale))
	}
	return scales
}
