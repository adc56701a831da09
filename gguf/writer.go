package gguf

import "github.com/microscale-go/microscale/safetensors"

// File returns the layout for a safetensors.Writer of the file. Until its Close succeeds, the
// first bytes are zero, which no reader accepts. The writer treats tensors as bytes.
func (l *Layout) File() (*safetensors.Layout, error) {
	var tensors []safetensors.TensorInfo
	for _, t := range l.header.Tensors {
		tensors = append(tensors, safetensors.TensorInfo{Name: t.Name, Dtype: safetensors.U8, Shape: []int64{t.Bytes()}, Begin: t.Begin, End: t.End})
	}
	return safetensors.Foreign(l.prefix, l.size-int64(len(l.prefix)), tensors)
}

// Create creates a file of the layout. Both containers share the writer, which can resume an
// unfinished file.
func Create(path string, l *Layout) (*safetensors.Writer, error) {
	file, err := l.File()
	if err != nil {
		return nil, err
	}
	return safetensors.Create(path, file)
}
