package llamacpp

import (
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

// FileLayout returns the layout of a GGUF file for a safetensors.Writer, which conversions use for
// both containers: it resumes files and records their checksums. It treats tensors as bytes. Until
// its Close succeeds, the first bytes of the file are zero, which no reader accepts.
func FileLayout(l *gguf.Layout) (*safetensors.Layout, error) {
	var tensors []safetensors.TensorInfo
	for _, t := range l.Tensors() {
		tensors = append(tensors, safetensors.TensorInfo{Name: t.Name, Dtype: safetensors.U8, Shape: []int64{t.Bytes()}, Begin: t.Begin,
			End: t.End})
	}
	return safetensors.Foreign(l.HeaderBytes(), l.FileSize()-int64(len(l.HeaderBytes())), tensors)
}
