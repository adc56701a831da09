// Package numbers shows how numbers become codes, step by step: casts to a scalar
// format, quantized blocks, and dot products of matrix units. The codes are those
// of packages format, quant and mma; the text and the JSON are this package's.
package numbers
