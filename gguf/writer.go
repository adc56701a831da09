package gguf

import "github.com/microscale-go/microscale/safetensors"

// File returns the layout by which a safetensors.Writer fills in the file: until
// its Close has succeeded the first bytes are zero, which no reader accepts.
// Tensors are bytes to it.
func (l *Layout) File() (*safetensors.Layout, error) {
	var tensors []safetensors.TensorInfo
	for _, t := range l.header.Tensors {
		tensors = append(tensors, safetensors.TensorInfo{Name: t.Name, Dtype: safetensors.U8, Shape: []int64{t.Bytes()}, Begin: t.Begin, End: t.End})
	}
	return safetensors.Foreign(l.prefix, l.size-int64(len(l.prefix)), tensors)
}

// Create makes a file of the layout, for a writer that both containers share, and
// which goes on with a file that it left unfinished.
func Create(path string, l *Layout) (*safetensors.Writer, error) {
	file, err := l.File()
	if err != nil {
		return nil, err
	}
	return safetensors.Create(path, file)
}
