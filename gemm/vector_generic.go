package gemm

import (
	"unsafe"
)

// referenceVector is the fallback for few rows of A. It decodes each row of B once, to the values
// that Dequantize returns, without packing.
var referenceVector = kernel{Name: "vector-f32-reference", panel: panelF32, vector: &vectorKernel{block: 1, lanes: 1}}

// vectorGeneric sets w.edge to the products with rows l0…l1 of B.
func (w *worker) vectorGeneric(l0, l1 int) {
	p, v := &w.job.plan, &w.job.vector
	grow(&w.scratch.values, p.k)
	y := w.scratch.values[:p.k]
	for l := l0; l < l1; l++ {
		p.b.elements(y, l, 0)
		p.b.fold(y, l, 0)
		for b := range w.job.height() {
			x := unsafe.Slice((*float32)(unsafe.Pointer(&v.x[b*v.xStride])), p.k)
			w.edge[b*vectorRows+l-l0] = dotGeneric(x, y)
		}
	}
}

// dotGeneric returns the dot product of two rows, in four independent sums. It rounds each
// product before the addition: the conversions prevent the compiler from fusing the two.
func dotGeneric(x, y []float32) float32 {
	var s0, s1, s2, s3 float32
	y = y[:len(x)]
	for len(x) >= 4 && len(y) >= 4 {
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		s0 += float32(v * y[i])
	}
	return s0 + s1 + (s2 + s3)
}

// vectorReference recomputes the products with row l of B in float64.
func (w *worker) vectorReference(l, at int) {
	p := &w.job.plan
	grow(&w.scratch.values, 2*p.k)
	x, y := w.scratch.values[:p.k], w.scratch.values[p.k:2*p.k]
	p.b.elements(y, l, 0)
	if !p.b.perRow() {
		p.b.fold(y, l, 0)
	}
	for b := range w.job.height() {
		row := w.job.rows.from + b
		p.a.elements(x, row, 0)
		if !p.a.perRow() {
			p.a.fold(x, row, 0)
		}
		var sum float64
		for k := range x {
			sum += float64(x[k]) * float64(y[k])
		}
		w.edge[b*vectorRows+at] = float32(sum)
	}
}
