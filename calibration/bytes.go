package calibration

import (
	"encoding/binary"
	"math"
)

// upper returns the upper triangle of an n×n matrix, row after row.
func upper(h []float64, n int) []float64 {
	out := make([]float64, 0, n*(n+1)/2)
	for i := range n {
		out = append(out, h[i*n+i:(i+1)*n]...)
	}
	return out
}

// scaled returns values times scale as the bytes of float32.
func scaled(values []float64, scale float64) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(v*scale)))
	}
	return out
}

// floatBytes returns the bytes of float32 values.
func floatBytes(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
