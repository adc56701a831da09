package safetensors

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/limits"
)

// maxHeaderSize is the largest header, in bytes, that the reference
// implementation reads or writes (tensor.rs, MAX_HEADER_SIZE).
const maxHeaderSize = 100_000_000

const (
	lengthSize  = 8 // the u64 before the header
	metadataKey = "__metadata__"
)

// A TensorInfo is a tensor's entry in a header.
type TensorInfo struct {
	Name       string
	Dtype      Dtype
	Shape      []int64 // outermost dimension first; empty means one element
	Begin, End int64   // bytes [Begin, End) of the data buffer
}

// Bytes returns the number of bytes of the tensor's data.
func (t TensorInfo) Bytes() int64 { return t.End - t.Begin }

// Elements returns the product of the dimensions: logical elements, of which
// F4 has two in a byte. It cannot overflow for a tensor of a [File] or a
// [Layout].
func (t TensorInfo) Elements() int64 {
	n := int64(1)
	for _, dim := range t.Shape {
		n *= dim
	}
	return n
}

// A header is the parsed header of a file.
type header struct {
	metadata map[string]string // nil if the file has none
	tensors  []TensorInfo      // in the order of their data
}

// parseHeader parses a header, without the eight bytes of length before it, of a file with
// dataSize bytes of data. byName has the index of each tensor. parseHeader makes every check of
// the reference reader, and also rejects:
//
//   - equal keys, at every level
//   - keys of a tensor's entry other than dtype, shape and data_offsets
//   - NUL in a tensor's name
//   - dimensions and offsets above 2⁶³−1
//
// Like that reader, it accepts white space around the object, although no writer should start
// with any. The offset of the error counts from the start of the file.
func parseHeader(json []byte, dataSize int64) (h *header, byName map[string]int, err *ContainerError) {
	if len(json) > maxHeaderSize {
		return nil, nil, &ContainerError{Offset: 0, Problem: tooLarge(uint64(len(json))), Fix: fixForeign}
	}
	dataStart := lengthSize + int64(len(json))
	if dataSize < 0 || dataSize > math.MaxInt64-dataStart {
		return nil, nil, &ContainerError{Offset: -1, Problem: fmt.Sprintf("no file has a data buffer of %d bytes", dataSize)}
	}
	if h, byName, err = scanHeader(json); err != nil {
		return nil, nil, err
	}
	if err := checkData(h.tensors, dataStart, dataSize); err != nil {
		if err.Tensor != "" && err.Offset < 0 {
			err.Offset = entryOffset(json, err.Tensor)
		}
		return nil, nil, err
	}
	for i, t := range h.tensors { // they were sorted
		byName[t.Name] = i
	}
	return h, byName, nil
}

func tooLarge(n uint64) string {
	return fmt.Sprintf("the header has %d bytes, more than the limit of %d", n, maxHeaderSize)
}

// entryOffset returns the file offset of a tensor's entry in a header that scanHeader
// accepts. Headers may have a million entries, whose offsets only errors need.
func entryOffset(json []byte, name string) (offset int64) {
	s := &scanner{data: json, base: lengthSize}
	_ = s.members(func(string) bool { return false }, func(key string, at int) *ContainerError {
		if key == name {
			offset = s.base + int64(at)
		}
		return s.skip(headerDepth)
	})
	return offset
}

// headerDepth is how deep a header nests below the names of its tensors.
const headerDepth = 3

// scanHeader reads the JSON. byName has the index of each tensor.
func scanHeader(json []byte) (h *header, byName map[string]int, err *ContainerError) {
	s := &scanner{data: json, base: lengthSize, fix: fixDamaged}
	if len(json) == 0 {
		return nil, nil, s.fail(0, "the header is empty")
	}
	if err := s.checkUTF8(); err != nil {
		return nil, nil, err
	}
	n := bytes.Count(json, []byte(`"data_offsets"`)) // about as many as tensors
	h, byName = &header{tensors: make([]TensorInfo, 0, n)}, make(map[string]int, n)
	metadata := false
	twice := func(key string) bool {
		_, tensor := byName[key]
		return tensor || metadata && key == metadataKey
	}
	err = s.members(twice, func(key string, at int) (err *ContainerError) {
		if key == metadataKey {
			metadata = true
			h.metadata, err = scanMetadata(s)
			return err
		}
		if problem := checkName(key); problem != "" {
			err = s.fail(at, "%s", problem)
		} else {
			var t TensorInfo
			t, err = scanTensor(s, at)
			t.Name = key
			byName[key] = len(h.tensors)
			h.tensors = append(h.tensors, t)
		}
		if err != nil {
			err.Tensor = key
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, nil, err
	}
	return h, byName, nil
}

// checkName returns the problem with the name of a tensor, or "".
func checkName(name string) string {
	switch {
	case name == metadataKey:
		return "the name " + metadataKey + " is reserved for the metadata"
	case strings.ContainsRune(name, 0):
		return "the name contains a NUL character"
	}
	return ""
}

// scanMetadata reads the metadata. Null is none, as in the reference reader.
func scanMetadata(s *scanner) (map[string]string, *ContainerError) {
	metadata := make(map[string]string)
	switch s.peek() {
	case '{':
	case 'n':
		return nil, s.skip(1)
	default:
		return nil, s.fail(s.pos, "%s is not an object of strings", metadataKey)
	}
	err := s.object(func(key string, _ int) (err *ContainerError) {
		if s.peek() != '"' {
			return s.fail(s.pos, "%s: the value of %s is not a string", metadataKey, limits.Quote(key))
		}
		metadata[key], err = s.str()
		return err
	})
	return metadata, err
}

// scanTensor reads one entry; at is the position of its name.
func scanTensor(s *scanner, at int) (t TensorInfo, err *ContainerError) {
	if s.peek() != '{' {
		return t, s.fail(s.pos, "the entry is not an object")
	}
	var offsets []int64
	err = s.object(func(key string, keyAt int) (err *ContainerError) {
		s.peek()
		at := s.pos
		switch key {
		case "dtype":
			if s.peek() != '"' {
				return s.fail(at, "dtype is not a string")
			}
			name, err := s.str()
			if err != nil {
				return err
			}
			d, unknown := parseDtype(name)
			if unknown != nil {
				err = s.fail(at, "%v", unknown)
				err.Fix = "this file needs a newer reader, or is damaged"
				return err
			}
			t.Dtype = d
		case "shape":
			t.Shape, err = scanIntegers(s, "shape", "a dimension of the shape")
		case "data_offsets":
			offsets, err = scanIntegers(s, "data_offsets", "a data offset")
			if err == nil && len(offsets) != 2 {
				return s.fail(at, "data_offsets has %d numbers, expected 2", len(offsets))
			}
		default:
			return s.fail(keyAt, "unknown key %s", limits.Quote(key))
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.Dtype == 0:
		return t, s.fail(at, "dtype is missing")
	case t.Shape == nil:
		return t, s.fail(at, "shape is missing")
	case offsets == nil:
		return t, s.fail(at, "data_offsets is missing")
	}
	t.Begin, t.End = offsets[0], offsets[1]
	return t, nil
}

// scanIntegers reads an array of integers. The result is never nil.
func scanIntegers(s *scanner, key, what string) ([]int64, *ContainerError) {
	list := s.integers[:0]
	if s.peek() != '[' {
		return nil, s.fail(s.pos, "%s is not an array", key)
	}
	err := s.array(func() *ContainerError {
		v, err := s.integer(what)
		list = append(list, v)
		return err
	})
	s.integers = list
	return append(make([]int64, 0, len(list)), list...), err
}

// checkData sorts tensors into the order of their data and checks that they
// fill the data buffer exactly, each with the bytes its dtype and shape need. The
// error of a tensor's entry has no offset yet.
func checkData(tensors []TensorInfo, dataStart, dataSize int64) *ContainerError {
	// Empty tensors may share an offset; they keep the writer's order, so that
	// a header is parsed into the order of the layout it came from.
	slices.SortFunc(tensors, func(a, b TensorInfo) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), writerOrder(a, b))
	})
	next := int64(0)
	for _, t := range tensors {
		if problem := checkTensor(t, next); problem != "" {
			return &ContainerError{Tensor: t.Name, Offset: -1, Problem: problem, Fix: fixDamaged}
		}
		next = t.End
	}
	switch {
	case next > dataSize:
		last := tensors[len(tensors)-1].Name
		return &ContainerError{Tensor: last, Offset: dataStart + dataSize, Fix: fixTruncated, Err: io.ErrUnexpectedEOF,
			Problem: fmt.Sprintf("the file ends %d bytes before the last tensor does", next-dataSize)}
	case next < dataSize:
		return &ContainerError{Offset: dataStart + next, Fix: fixDamaged,
			Problem: fmt.Sprintf("%d bytes follow the last tensor", dataSize-next)}
	}
	return nil
}

// checkTensor returns the problem with a tensor whose data must start at next, or "".
func checkTensor(t TensorInfo, next int64) string {
	switch {
	case t.Begin > next:
		return fmt.Sprintf("data starts at byte %d of the data buffer, expected %d (hole between tensors)", t.Begin, next)
	case t.Begin < next:
		return fmt.Sprintf("data starts at byte %d of the data buffer, expected %d (overlaps another tensor)", t.Begin, next)
	case t.End < t.Begin:
		return fmt.Sprintf("data ends at byte %d of the data buffer, before it starts at %d", t.End, t.Begin)
	}
	size, problem := t.Dtype.size(t.Shape)
	if problem == "" && size != t.Bytes() {
		problem = fmt.Sprintf("data has %d bytes, but shape %s of %s needs %d", t.Bytes(), shortShape(t.Shape), t.Dtype, size)
	}
	return problem
}
