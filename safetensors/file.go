package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/microscale-go/microscale/internal/limits"
)

// A File is an open safetensors file. Its methods may be called from several
// goroutines at once, except Close.
type File struct {
	name      string
	r         io.ReaderAt
	closer    io.Closer // nil when the caller owns r
	size      int64
	opened    os.FileInfo // as it was then; nil after NewFile
	dataStart int64       // byte offset of the data buffer, from which tensors count
	header    *header
	byName    map[string]int // index into header.tensors
	filled    string         // the bytes that the layout reserves, read by Layout.Open
}

// Open opens a file and checks its header as [NewFile] does. It does not read tensor data. If
// many files are open, it closes the descriptors of the least recently read ones until their
// next read.
func Open(path string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	h := newHandle(path, f, info, false)
	file, err := NewFile(h, info.Size(), path)
	if err != nil {
		h.Close()
		return nil, err
	}
	file.closer, file.opened = h, info
	return file, nil
}

// openRegular opens a regular file and returns its file info.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	f, info, err := limits.Open(path)
	if errors.Is(err, limits.ErrNotRegular) {
		err = notRegular(path)
	}
	return f, info, err
}

func notRegular(path string) error {
	return &ContainerError{Path: path, Offset: -1, Problem: limits.ErrNotRegular.Error(), Fix: "name a file"}
}

// NewFile checks the header of a file of size bytes that is read through r. name is used only in
// errors.
//
// Besides the checks of the reference reader, it rejects equal keys at every level, keys of a
// tensor's entry other than dtype, shape and data_offsets, NUL in a tensor's name, and dimensions
// and offsets above 2⁶³−1. The error for an invalid header is a [*ContainerError].
func NewFile(r io.ReaderAt, size int64, name string) (*File, error) {
	header, byName, headerSize, err := readHeader(r, size, name)
	if e, ok := errors.AsType[*ContainerError](err); ok {
		e.Path = name
	}
	if err != nil {
		return nil, err
	}
	return &File{name: name, r: r, size: size, header: header, dataStart: lengthSize + headerSize, byName: byName}, nil
}

// readHeader reads and checks the header and its length.
func readHeader(r io.ReaderAt, size int64, name string) (h *header, byName map[string]int, headerSize int64, err error) {
	fail := func(offset int64, problem, fix string) (*header, map[string]int, int64, error) {
		fault := &ContainerError{Offset: offset, Problem: problem, Fix: fix}
		if fix == fixTruncated {
			fault.Err = io.ErrUnexpectedEOF
		}
		return nil, nil, 0, fault
	}
	if size < lengthSize {
		return fail(max(size, 0), fmt.Sprintf("the file has %d bytes, fewer than the %d of the header's length", size, lengthSize), fixTruncated)
	}
	var prefix [lengthSize]byte
	if err := readFull(r, prefix[:], 0, name, ""); err != nil {
		return nil, nil, 0, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case string(prefix[:]) == "version ":
		return fail(0, "this is a Git LFS pointer, not the file it points to", "run git lfs pull, or fetch the file itself")
	case n == 0:
		return fail(0, "the header's length is 0", "the file was never finished; write or fetch it again")
	case n > maxHeaderSize:
		return fail(0, tooLarge(n), fixForeign)
	case int64(n) > size-lengthSize:
		return fail(size, fmt.Sprintf("the header ends at byte %d, after the end of the file", lengthSize+n), fixTruncated)
	}
	json := make([]byte, n)
	if err := readFull(r, json, lengthSize, name, ""); err != nil {
		return nil, nil, 0, err
	}
	h, byName, fault := parseHeader(json, size-lengthSize-int64(n))
	if fault != nil {
		return nil, nil, 0, fault
	}
	return h, byName, int64(n), nil
}

// readFull fills p from a byte offset of the file.
func readFull(r io.ReaderAt, p []byte, offset int64, name, tensor string) error {
	n, err := r.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return &ContainerError{Path: name, Tensor: tensor, Offset: offset + int64(n), Fix: "fetch it again", Err: io.ErrUnexpectedEOF,
			Problem: fmt.Sprintf("the file ended %d bytes early: it changed or was truncated after it was opened", len(p)-n)}
	}
	return ioError(name, place(tensor, offset+int64(n)), err)
}

// Name returns the path or name that the file was opened with.
func (f *File) Name() string { return f.name }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Info returns the file info at the time of opening, or nil after [NewFile].
func (f *File) Info() os.FileInfo { return f.opened }

// Changed returns a [*ContainerError] if the file of that name was replaced or modified since
// it was opened: its size, time or identity differs. After [NewFile], it calls the reader's
// method of the same name, if any.
func (f *File) Changed() error {
	if r, ok := f.r.(interface{ Changed() error }); ok {
		return r.Changed()
	}
	if f.opened == nil {
		return nil
	}
	now, err := os.Stat(f.name)
	if err != nil {
		return ioError(f.name, "asking whether it changed while it was read", err)
	}
	if !os.SameFile(now, f.opened) || now.Size() != f.size || !now.ModTime().Equal(f.opened.ModTime()) {
		return errChanged(f.name)
	}
	return nil
}

func errChanged(path string) error {
	return &ContainerError{Path: path, Offset: -1, Problem: "the file changed or was replaced while it was read",
		Fix: "run again when nothing writes to it"}
}

// Identity calls the method of the same name of the reader given to [NewFile], if any. It
// identifies the content, for example by a hash from a server. Otherwise Identity returns "".
func (f *File) Identity() string {
	if r, ok := f.r.(interface{ Identity() string }); ok {
		return r.Identity()
	}
	return ""
}

// DataStart returns the offset of the data, after the header.
func (f *File) DataStart() int64 { return f.dataStart }

// Metadata returns the header's metadata, or nil if there is none. The caller must not modify
// it.
func (f *File) Metadata() map[string]string { return f.header.metadata }

// Tensors returns the tensors in the order of their data. The caller must not
// modify them.
func (f *File) Tensors() []TensorInfo { return f.header.tensors }

// Lookup returns the tensor of a name.
func (f *File) Lookup(name string) (TensorInfo, bool) {
	i, ok := f.byName[name]
	if !ok {
		return TensorInfo{}, false
	}
	return f.header.tensors[i], true
}

// ReadTensorAt fills p with the bytes of a tensor of this file from offset off on. It returns
// an error, and reads nothing, unless [off, off+len(p)) is inside the tensor. If the file
// became shorter since it was opened, the error is a [*ContainerError].
func (f *File) ReadTensorAt(p []byte, info TensorInfo, off int64) error {
	if err := checkRange(f.name, info, f.size-f.dataStart, len(p), off); err != nil {
		return err
	}
	return readFull(f.r, p, f.dataStart+info.Begin+off, f.name, info.Name)
}

// ReadTensorsAt fills each p[i] with the bytes of the tensor infos[i] from offset off[i] on, under the
// conditions of [File.ReadTensorAt]. The slices have equal lengths. It calls the method ReadRangesAt(p [][]byte, off []int64) error of
// the reader given to [NewFile], if any, with offsets in the file: a reader that interleaves tensors
// then reads each byte once.
func (f *File) ReadTensorsAt(p [][]byte, infos []TensorInfo, off []int64) error {
	r, ok := f.r.(interface {
		ReadRangesAt(p [][]byte, off []int64) error
	})
	at := make([]int64, len(p))
	for i, info := range infos {
		if !ok {
			if err := f.ReadTensorAt(p[i], info, off[i]); err != nil {
				return err
			}
			continue
		}
		if err := checkRange(f.name, info, f.size-f.dataStart, len(p[i]), off[i]); err != nil {
			return err
		}
		at[i] = f.dataStart + info.Begin + off[i]
	}
	if !ok || len(p) == 0 {
		return nil
	}
	if err := r.ReadRangesAt(p, at); err != nil {
		return ioError(f.name, place(infos[0].Name, at[0]), err)
	}
	return nil
}

// checkRange checks that the n bytes at off are inside a tensor, and the tensor
// inside the data buffer.
func checkRange(path string, t TensorInfo, dataSize int64, n int, off int64) error {
	if t.Begin < 0 || t.Begin > t.End || t.End > dataSize {
		return fmt.Errorf("%s: tensor %s: bytes %d to %d are not in the data buffer of %d bytes: the tensor is of another file",
			path, limits.Quote(t.Name), t.Begin, t.End, dataSize)
	}
	return limits.CheckRange(path, t.Name, t.Bytes(), n, off)
}

// Close closes a file that [Open] opened. It does nothing after [NewFile].
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}
