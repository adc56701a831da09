// Package numbers converts numbers to codes and shows the steps: casts to a scalar
// format, quantized blocks, and dot products of matrix units. Packages format, quant
// and mma compute the codes. This package parses the numbers, and prints text and JSON.
package numbers
