// Package lossless casts codes and scales of one block format to another where no value changes.
//
// A target block is exact if some scale of the target format, with some code for each element,
// decodes to the bits of the source. For scales of one byte, scales.solve tries every scale that can represent
// the smallest and the largest value. For FP32 scales, solveFP32 tries those under which the largest value has some
// code. So a block that they report as inexact has no exact cast, and the conditions of the table follow from that.
package lossless

import (
	"github.com/microscale-go/microscale/quant"
)

// A Cast is a row of the table.
type Cast struct {
	From, To  quant.Format
	Condition string // when a block is exact
	Always    bool   // every block is exact, so that none has to be read before
}

// Conditions that several rows have.
const (
	always  = "always"
	dropped = "always: a scheme that stores no scales of activations drops them"
	powers  = "the scale is a power of two that E8M0 has; other scales if each product has at most 4 significant bits"
	within  = "the scales in the block are equal, or differ by powers of two by which the codes can be shifted"
)

// table lists the casts. A pair that it lacks has no use, or loses bits in almost every block.
var table = []Cast{
	{quant.MXFP4, quant.NVFP4, "scales of fused weights are within 17 binades of the largest; more where codes can be shifted", false},
	{quant.MXFP4, quant.MXFP8, always, true},
	{quant.MXFP4, quant.FP8Block, "scales in the block are within 14 binades of the largest; one more if it has no code 0.5 or 1.5", false},
	{quant.MXFP4, quant.FP8Vec128, "scales in the block are within 14 binades of the largest; one more if it has no code 0.5 or 1.5", false},
	{quant.NVFP4, quant.NVFP4, "scale times the ratio of the global scales is an E4M3 number", false},
	{quant.NVFP4x16, quant.NVFP4, "scale times the ratio of the global scales is an E4M3 number", false},
	{quant.NVFP4, quant.MXFP4, "both scales of the block, times the global scale, are powers of two by which the codes can be shifted", false},
	{quant.NVFP4, quant.MXFP8, "scale times global scale is a power of two, or each product has at most 4 significant bits", false},
	{quant.MXFP8, quant.FP8Block, within, false},
	{quant.MXFP8, quant.FP8Vec128, within, false},
	{quant.MXFP8x32, quant.MXFP8, always, true},
	{quant.MXFP8x32, quant.FP8Block, within, false},
	{quant.FP8Block, quant.MXFP8, powers, false},
	{quant.FP8Vec128, quant.MXFP8, powers, false},
	{quant.FP8Row, quant.MXFP8, powers, false},
	{quant.FP8Tensor, quant.MXFP8, powers, false},
	{quant.FP8Block, quant.FP8Vec128, always, true},
	{quant.FP8Row, quant.FP8Vec128, always, true},
	{quant.FP8Tensor, quant.FP8Vec128, always, true},
	{quant.FP8Tensor, quant.FP8Block, always, true},
	{quant.FP8Tensor, quant.FP8Row, always, true},
	{quant.FP8Tensor, quant.FP8Tensor, dropped, true},
	{quant.FP8Row, quant.FP8Row, dropped, true},
	{quant.FP8Vec128, quant.FP8Block, within, false},
	{quant.FP8Row, quant.FP8Block, within, false},
	{int8Row, quant.MXINT8, "the scale is a power of two that E8M0 has; other scales if each product has at most 7 significant bits", false},
}

// int8Row is INT8 with one scale for each row.
var int8Row = mustLookup("int8-row")

func mustLookup(name string) quant.Format {
	f, err := quant.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

// Table returns the rows of the table.
func Table() []Cast { return append([]Cast(nil), table...) }

// Lookup returns the cast between two formats. ok is false if the table has none.
func Lookup(from, to quant.Format) (c Cast, ok bool) {
	for _, row := range table {
		if row.From.Name == from.Name && row.To.Name == to.Name {
			return row, true
		}
	}
	return Cast{}, false
}

// To returns the formats to which a format is cast.
func To(from quant.Format) (formats []quant.Format) {
	for _, row := range table {
		if row.From.Name == from.Name {
			formats = append(formats, row.To)
		}
	}
	return formats
}
