package bench

import (
	"time"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// streams lists the conversions whose memory traffic Limits measures.
var streams = []struct {
	source *format.Scalar
	format quant.Format
}{{format.F32, quant.MXFP8}, {format.F32, quant.MXFP4}, {format.BF16, quant.MXFP8}, {format.BF16, quant.MXFP4}}

// Limits measures what the machine allows: reading, writing and copying size bytes, streaming
// the bytes of some conversions with each kind of stores, and the instructions that bound
// kernels. The budget is for all of it.
func (t *Team) Limits(mem *Memory, size int, budget time.Duration) []Result {
	ways := Ways()
	each := budget / time.Duration(2+(2+len(streams))*len(ways))
	results := []Result{t.Read(mem, size, each)}
	for _, way := range ways {
		results = append(results, t.Write(mem, size, way, each))
	}
	for _, way := range ways {
		results = append(results, t.Copy(mem, size, way, each))
	}
	for _, s := range streams {
		elements := float64(size) / float64(s.source.Bits()/8)
		for _, way := range ways {
			r := t.Stream(mem, size, int(elements*s.format.BitsPerElement()/8), way, each)
			r.Format, r.Source = s.format.Name, s.source.Name
			results = append(results, r)
		}
	}
	return append(results, t.Peaks(each)...)
}
