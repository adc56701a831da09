package llamacpp

import (
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
)

// structBytes is about the size of the rows of structs that are read at a time: they stay in a core's
// cache until they are separated.
const structBytes = 256 << 10

// ReadRangesAt reads the codes and the scales of the same rows from one pass over the file. It reads
// other ranges one by one.
func (v *view) ReadRangesAt(p [][]byte, off []int64) error {
	if r, ok := v.rowsOf(p, off); ok {
		return v.readStructs(r)
	}
	for i := range p {
		if _, err := v.ReadAt(p[i], off[i]); err != nil {
			return err
		}
	}
	return nil
}

// structRows are rows of a part that consists of structs, and the destinations of their codes and scales.
type structRows struct {
	part
	structs       ggml.Struct
	codes, scales []byte
	row           int64 // bytes of a row in the file
	first, n      int64 // rows of the view
}

// rowsOf returns the rows of two ranges of the view. ok is false unless they are the codes and the scales
// of the same rows.
func (v *view) rowsOf(p [][]byte, off []int64) (r structRows, ok bool) {
	if len(p) != 2 {
		return r, false
	}
	head := int64(len(v.layout.HeaderBytes()))
	codes, hasCodes := v.tensorAt(off[0] - head)
	scales, hasScales := v.tensorAt(off[1] - head)
	r.part = v.parts[codes.Name]
	other := v.parts[scales.Name]
	if !hasCodes || !hasScales || r.kind != checkpoint.Codes || other.kind != checkpoint.Scales || r.values != nil ||
		r.unit == 0 || r.size == 0 || r.tensor.Name != other.tensor.Name || r.from != other.from {
		return r, false
	}
	r.structs, r.codes, r.scales = structsOf(r.tensor.Type), p[0], p[1]
	r.row = int64(r.structs.Bytes()) // rows that follow each other in the file need not be told apart
	switch {
	case r.other != nil:
		r.row = r.size / 2 / r.rows
	case r.place.HeadDim > 0:
		r.row = r.size / r.tensor.Shape[0]
	}
	n := r.row / int64(r.structs.Bytes()) // structs
	from := [2]int64{off[0] - head - codes.Begin, off[1] - head - scales.Begin}
	size := [2]int64{n * int64(r.unit), n * int64(other.unit)}
	r.first, r.n = from[0]/size[0], int64(len(p[0]))/size[0]
	for i := range size {
		if from[i] != r.first*size[i] || int64(len(p[i])) != r.n*size[i] {
			return r, false
		}
	}
	return r, true
}

// readStructs fills the codes and scales of r.
func (v *view) readStructs(r structRows) error {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	group, read := int64(1), v.readRun
	switch {
	case r.other != nil:
		read = v.readAlternate
	case r.place.HeadDim > 0:
		group, read = int64(r.place.HeadDim), v.readHeads
	}
	step := max(1, structBytes/(group*r.row)) * group
	for first, end := r.first, r.first+r.n; first < end; {
		last := min(first-first%group+step, end)
		if err := read(b, r, first, last); err != nil {
			return err
		}
		first = last
	}
	return nil
}

// readRun reads rows [first, last), which are contiguous in the file.
func (v *view) readRun(b *buffer, r structRows, first, last int64) error {
	if err := b.read(v.file, r.tensor, r.from+first*r.row, (last-first)*r.row); err != nil {
		return err
	}
	r.separate(b, first, last-first, b.raw)
	return nil
}

// readHeads reads rows [first, last) of heads whose rows have another order in the file.
func (v *view) readHeads(b *buffer, r structRows, first, last int64) error {
	dim := int64(r.place.HeadDim)
	from, to := first-first%dim, (last+dim-1)/dim*dim
	if err := b.read(v.file, r.tensor, r.from+from*r.row, (to-from)*r.row); err != nil {
		return err
	}
	for i := first; i < last; i++ {
		at := int64(r.place.Row(int(i))) - from
		r.separate(b, i, 1, b.raw[at*r.row:(at+1)*r.row])
	}
	return nil
}

// readAlternate reads rows [first, last) of a part with the rows of two tensors.
func (v *view) readAlternate(b *buffer, r structRows, first, last int64) error {
	for i, t := range []gguf.TensorInfo{r.tensor, *r.other} {
		from, to := (first+1-int64(i))/2, (last+1-int64(i))/2
		if err := b.read(v.file, t, from*r.row, (to-from)*r.row); err != nil {
			return err
		}
		for j := from; j < to; j++ {
			at := (j - from) * r.row
			r.separate(b, 2*j+int64(i), 1, b.raw[at:at+r.row])
		}
	}
	return nil
}

// separate sets the codes and scales of n rows from first on to those of the structs in raw.
func (r *structRows) separate(b *buffer, first, n int64, raw []byte) {
	at := first - r.first
	codes, scales := int64(len(r.codes))/r.n, int64(len(r.scales))/r.n
	b.separate(r.structs, r.codes[at*codes:(at+n)*codes], r.scales[at*scales:(at+n)*scales], raw)
}
