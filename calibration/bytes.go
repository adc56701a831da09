package calibration

import "encoding/binary"

// upper returns the upper triangle of an n×n matrix, row after row.
func upper[T float32 | float64](h []T, n int) []T {
	out := make([]T, 0, triangle(n))
	for i := range n {
		out = append(out, h[i*n+i:(i+1)*n]...)
	}
	return out
}

// scaled returns values times scale as the bytes of float32.
func scaled(values []float64, scale float64) []byte {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v * scale)
	}
	return floatBytes(out)
}

// floatBytes returns the bytes of float32 values.
func floatBytes(values []float32) []byte {
	out, _ := binary.Append(nil, binary.LittleEndian, values) // never fails
	return out
}
