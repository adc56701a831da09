package gguf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
)

// A File is an open GGUF file. Its methods may be called from several goroutines
// at once, except Close.
type File struct {
	Version   uint32       // 2 or 3
	Metadata  []Pair       // in the order of the file
	Tensors   []TensorInfo // in the order of their data
	Alignment int64        // of the data and of each tensor, in bytes

	name      string
	r         io.ReaderAt
	opened    os.FileInfo // of a file that Open opened; nil for others
	closer    io.Closer   // nil when the caller owns r
	size      int64
	dataStart int64
	byName    map[string]int

	parts []*File // of a split model, all of them
	part  []int   // the part of each tensor
}

// Open opens a file and checks its header. Tensor data is not read. A file that is a part of a split model, such as
// NAME-00001-of-00003.gguf, is opened with all other parts: the metadata are those of the first one, the tensors
// those of all. A missing part is an error that matches [io/fs.ErrNotExist].
func Open(path string) (*File, error) { return OpenWith(path, openFile) }

// OpenWith is Open for files that open returns, by their names: that with the name given, and all other parts if it is one. open reports a
// file that does not exist by an error that matches [io/fs.ErrNotExist].
func OpenWith(name string, open func(name string) (*File, error)) (*File, error) {
	file, err := open(name)
	if err != nil || file.partCount() <= 1 {
		return file, err
	}
	return file.openParts(open)
}

// openFile opens a file alone.
func openFile(path string) (*File, error) {
	f, info, err := limits.Open(path)
	if errors.Is(err, limits.ErrNotRegular) {
		return nil, &safetensors.ContainerError{Path: path, Offset: -1, Problem: limits.ErrNotRegular.Error(), Fix: "name a file"}
	}
	if err != nil {
		return nil, err
	}
	file, err := NewFile(f, info.Size(), path)
	if err != nil {
		f.Close()
		return nil, err
	}
	file.opened, file.closer = info, f
	return file, nil
}

// NewFile checks the header of a file of size bytes that is read through r. The
// name is for errors only.
func NewFile(r io.ReaderAt, size int64, name string) (*File, error) {
	h, dataStart, err := readHeader(r, size)
	if e, ok := errors.AsType[*safetensors.ContainerError](err); ok {
		e.Path = name
		return nil, e
	}
	if err != nil {
		return nil, limits.FileError(name, "header", err)
	}
	f := &File{Version: h.Version, Metadata: h.Metadata, Tensors: h.Tensors, Alignment: h.Alignment, name: name, r: r, size: size,
		dataStart: dataStart, byName: make(map[string]int, len(h.Tensors))}
	for i, t := range h.Tensors {
		f.byName[t.Name] = i
	}
	return f, nil
}

// Name returns the path or name that the file was opened with.
func (f *File) Name() string { return f.name }

// Size returns the size of the file in bytes, of a split model that of all its files.
func (f *File) Size() int64 { return f.size }

// Parts returns the files, of which there are several if the model is split.
func (f *File) Parts() []*File {
	if f.parts == nil {
		return []*File{f}
	}
	return f.parts
}

// Paths returns the paths of the files.
func (f *File) Paths() (paths []string) {
	for _, p := range f.Parts() {
		paths = append(paths, p.name)
	}
	return paths
}

// Changed returns an error if a file was replaced or modified since it was opened. After [NewFile], it calls the reader's method of the
// same name, if any.
func (f *File) Changed() error {
	for _, p := range f.Parts() {
		if r, ok := p.r.(interface{ Changed() error }); ok {
			if err := r.Changed(); err != nil {
				return err
			}
		}
		if p.opened == nil {
			continue
		}
		now, err := os.Stat(p.name)
		if err != nil {
			return err
		}
		if !os.SameFile(now, p.opened) || now.Size() != p.opened.Size() || !now.ModTime().Equal(p.opened.ModTime()) {
			return fmt.Errorf("%s: the file changed or was replaced while it was read: run again when nothing writes to it", p.name)
		}
	}
	return nil
}

// Identity identifies the content by the methods of the same name of the readers given to [NewFile], as safetensors.File does. It is "" if
// one has none.
func (f *File) Identity() string {
	var all []string
	for _, p := range f.Parts() {
		r, ok := p.r.(interface{ Identity() string })
		if !ok {
			return ""
		}
		all = append(all, r.Identity())
	}
	return strings.Join(all, " ")
}

// Value returns the value of a key, or nil if there is none.
func (f *File) Value(key string) any {
	for _, p := range f.Metadata {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// Count returns the value of a key that is a uint32, 0 if there is none.
func (f *File) Count(key string) int {
	n, _ := f.Value(key).(uint32)
	return int(n)
}

// Lookup returns the tensor of a name.
func (f *File) Lookup(name string) (TensorInfo, bool) {
	i, ok := f.byName[name]
	if !ok {
		return TensorInfo{}, false
	}
	return f.Tensors[i], true
}

// ReadTensorAt fills p with the bytes of a tensor of this file from offset off on. It returns
// an error, and reads nothing, unless [off, off+len(p)) is inside the tensor. If the file
// became shorter since it was opened, the error is a [*safetensors.ContainerError].
func (f *File) ReadTensorAt(p []byte, t TensorInfo, off int64) error {
	if f.parts != nil {
		i, ok := f.byName[t.Name]
		if !ok {
			return fmt.Errorf("%s: no part has a tensor %s", f.name, limits.Quote(t.Name))
		}
		return f.parts[f.part[i]].ReadTensorAt(p, t, off)
	}
	if err := limits.CheckRange(f.name, t.Name, t.Bytes(), len(p), off); err != nil {
		return err
	}
	at := f.dataStart + t.Begin + off
	n, err := f.r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return &safetensors.ContainerError{Path: f.name, Tensor: t.Name, Offset: at + int64(n), Fix: "fetch it again",
			Problem: fmt.Sprintf("the file ended %d bytes early: it changed or was truncated after it was opened", len(p)-n)}
	}
	return limits.FileError(f.name, fmt.Sprintf("tensor %s: byte %d", limits.Quote(t.Name), at+int64(n)), err)
}

// Close closes a file that [Open] opened. It does nothing after [NewFile].
func (f *File) Close() error {
	if f.parts != nil {
		var all []error
		for _, p := range f.parts {
			all = append(all, p.Close())
		}
		return errors.Join(all...)
	}
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}
