package safetensors

import (
	"fmt"
	"math"
	"slices"
)

// Foreign returns the layout of a file of another container, for a [Writer] to fill in. prefix
// is the file up to its data; its first eight bytes are written last. dataSize is the size of
// the data in bytes. Tensors are in the given order and do not overlap.
func Foreign(prefix []byte, dataSize int64, tensors []TensorInfo) (*Layout, error) {
	l := &Layout{header: &header{tensors: slices.Clone(tensors)}, prefix: prefix, data: dataSize, byName: make(map[string]int, len(tensors))}
	if len(prefix) < lengthSize || dataSize < 0 || dataSize > math.MaxInt64-int64(len(prefix)) {
		return nil, &ContainerError{Offset: -1, Problem: fmt.Sprintf("a file of %d bytes before %d of data", len(prefix), dataSize),
			Fix: fixTensor}
	}
	next := int64(0)
	for i, t := range tensors {
		if _, twice := l.byName[t.Name]; twice || t.Begin < next || t.End < t.Begin || t.End > dataSize {
			return nil, &ContainerError{Tensor: t.Name, Offset: -1, Problem: "it overlaps another tensor, exceeds the data, or has the name of " +
				"another", Fix: fixTensor}
		}
		l.byName[t.Name] = i
		next = t.End
	}
	return l, nil
}

// Open opens a file that was written with the layout. It returns an error if the size or the
// bytes before the data differ, except those that [Layout.Reserve] marked.
func (l *Layout) Open(path string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, len(l.prefix))
	err = errOther(path)
	if info.Size() == l.FileSize() {
		if reading := readFull(f, head, 0, path, ""); reading != nil {
			err = reading
		} else if l.fits(head, 0) {
			err = nil
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	h := newHandle(path, f, info, false)
	return &File{name: path, r: h, closer: h, size: info.Size(), opened: info, dataStart: int64(len(l.prefix)), header: l.header,
		byName: l.byName, filled: string(head[l.from:l.to])}, nil
}

func errOther(path string) error {
	return &ContainerError{Path: path, Offset: -1, Problem: "its size or header is another", Fix: "write it again"}
}
