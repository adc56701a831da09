package gguf

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/microscale-go/microscale/safetensors"
)

// A Spec is a tensor to be written.
type Spec struct {
	Name  string
	Type  Type
	Shape []int64 // slowest dimension first
}

// A Layout is the plan of a file: the bytes of its header and the offset of each tensor. It is
// immutable and safe for concurrent use.
type Layout struct {
	header *header
	prefix []byte // the file up to its data
	size   int64
	byName map[string]int
}

// NewLayout plans a file with its tensors and metadata in the order given. The alignment is
// that of the metadata, or 32. It returns a [*safetensors.ContainerError] if [NewFile] would reject the
// file.
func NewLayout(tensors []Spec, metadata []Pair) (*Layout, error) {
	l := &Layout{header: &header{Version: currentVersion, Metadata: slices.Clone(metadata)}, byName: make(map[string]int, len(tensors))}
	b := append([]byte(magicText), binary.LittleEndian.AppendUint32(nil, currentVersion)...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(metadata)))
	b, err := l.appendMetadata(b)
	if err != nil {
		return nil, err
	}
	next := int64(0)
	for i, s := range tensors {
		t := TensorInfo{Name: s.Name, Type: s.Type, Shape: slices.Clone(s.Shape)}
		size, problem := checkTensor(t)
		if _, twice := l.byName[t.Name]; problem == "" && twice {
			problem = "the name appears twice"
		}
		if problem == "" && size > math.MaxInt64-next {
			problem = "the file would exceed 2^63-1 bytes"
		}
		if problem != "" {
			return nil, &safetensors.ContainerError{Tensor: t.Name, Offset: -1, Problem: problem, Fix: fixSpec}
		}
		t.Begin, t.End = next, next+size
		l.byName[t.Name] = i
		l.header.Tensors = append(l.header.Tensors, t)
		b = appendTensor(b, t)
		if next, err = padded(t.End, l.header.Alignment); err != nil {
			return nil, err
		}
	}
	start, err := padded(int64(len(b)), l.header.Alignment)
	if err != nil {
		return nil, err
	}
	if start > maxHeaderSize || next > math.MaxInt64-start {
		return nil, &safetensors.ContainerError{Offset: -1, Problem: "the header or the file would be too large",
			Fix: "write fewer tensors or less metadata"}
	}
	l.prefix, l.size = append(b, make([]byte, int(start)-len(b))...), start+next
	return l, nil
}

func (l *Layout) appendMetadata(b []byte) ([]byte, error) {
	seen := map[string]bool{}
	for _, p := range l.header.Metadata {
		problem := checkKey(p.Key)
		if problem == "" && seen[p.Key] {
			problem = "the key appears twice"
		}
		seen[p.Key] = true
		next, err := appendPair(b, p)
		if problem == "" && err != nil {
			problem = err.Error()
		}
		if problem != "" {
			return nil, &safetensors.ContainerError{Key: p.Key, Offset: -1, Problem: problem, Fix: fixSpec}
		}
		b = next
	}
	var problem string
	if l.header.Alignment, problem = alignment(l.header.Metadata); problem != "" {
		return nil, &safetensors.ContainerError{Key: alignmentKey, Offset: -1, Problem: problem, Fix: fixSpec}
	}
	return b, nil
}

func appendTensor(b []byte, t TensorInfo) []byte {
	b = appendString(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
	for _, d := range slices.Backward(t.Shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Begin))
}

// Tensors returns the tensors in the order of their data. The caller must not modify them.
func (l *Layout) Tensors() []TensorInfo { return l.header.Tensors }

// HeaderBytes returns the start of the file, up to the data. The caller must not
// change it.
func (l *Layout) HeaderBytes() []byte { return l.prefix }

// Lookup returns the tensor of a name.
func (l *Layout) Lookup(name string) (TensorInfo, bool) {
	i, ok := l.byName[name]
	if !ok {
		return TensorInfo{}, false
	}
	return l.header.Tensors[i], true
}

// Offset returns the byte offset in the file of a tensor's data.
func (l *Layout) Offset(name string) (int64, bool) {
	t, ok := l.Lookup(name)
	return int64(len(l.prefix)) + t.Begin, ok
}

// FileSize returns the size of the finished file in bytes, with the padding of the
// last tensor.
func (l *Layout) FileSize() int64 { return l.size }
