package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/safetensors"
)

// A header describes a file and its tensors.
type header struct {
	Version   uint32
	Metadata  []Pair       // in the order of the file
	Tensors   []TensorInfo // in the order of their data
	Alignment int64
}

// A TensorInfo is a tensor's entry in a header.
type TensorInfo struct {
	Name       string
	Type       Type
	Shape      []int64 // slowest dimension first, the reverse of the file's order; empty means one element
	Begin, End int64   // bytes [Begin, End) of the data, aligned at Begin
}

// Bytes returns the number of bytes of the tensor's data.
func (t TensorInfo) Bytes() int64 { return t.End - t.Begin }

// maxHeaderSize is the maximum size of a header that this package reads or writes, in bytes; of a split model, of all of them together.
// Current vocabularies take some ten megabytes.
const maxHeaderSize = 1 << 30

// A parser reads a header sequentially. After the first fault it reads zeros.
type parser struct {
	r    *bufio.Reader
	size int64 // of the file
	at   int64 // bytes read
	err  error
	buf  [8]byte
}

// readHeader reads and checks the header of a file of size bytes. It also returns the offset
// of the data.
func readHeader(r io.ReaderAt, size int64) (h *header, dataStart int64, err error) {
	p := &parser{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, min(size, maxHeaderSize)), 1<<16), size: size}
	h = &header{}
	tensors, pairs := p.preamble(h)
	p.metadata(h, pairs)
	h.Alignment = p.alignment(h)
	offsets := p.tensors(h, tensors)
	if p.err != nil {
		return nil, 0, p.err
	}
	if dataStart, err = padded(p.at, h.Alignment); err == nil {
		err = place(h, offsets, dataStart, size)
	}
	return h, dataStart, err
}

// preamble reads the fields before the metadata.
func (p *parser) preamble(h *header) (tensors, pairs uint64) {
	if magic := string(p.bytes(4)); p.err == nil && magic != magicText {
		switch {
		case magic == "\x00\x00\x00\x00":
			p.failAt(0, "the file does not begin with "+magicText+" but with zeros", "it was never finished; write or fetch it again")
		case magic == "vers":
			p.failAt(0, "this is a Git LFS pointer, not the file it points to", "run git lfs pull, or fetch the file itself")
		default:
			p.failAt(0, fmt.Sprintf("the file begins with %q, not with %s", magic, magicText), fixForeign)
		}
	}
	h.Version = p.uint32()
	switch {
	case p.err != nil:
	case bits.ReverseBytes32(h.Version) == currentVersion:
		p.failAt(4, "the file is for a big-endian machine", "convert it to little-endian")
	case h.Version != currentVersion && h.Version != currentVersion-1:
		p.failAt(4, fmt.Sprintf("version %d is not read, only 2 and 3", h.Version), "convert the model again")
	}
	tensors, pairs = p.uint64(), p.uint64()
	if p.err == nil && (tensors > math.MaxInt64 || pairs > math.MaxInt64) {
		p.failAt(8, "a negative number of tensors or keys", fixDamaged)
	}
	return tensors, pairs
}

// metadata reads n entries.
func (p *parser) metadata(h *header, n uint64) {
	seen := map[string]bool{}
	for range n {
		start := p.at
		key := p.string()
		if p.err == nil {
			if problem := checkKey(key); problem != "" {
				p.failAt(start, problem, fixDamaged)
			} else if seen[key] {
				p.failAt(start, "the key appears twice", fixDamaged)
			}
		}
		value := p.value(p.uint32())
		if p.err != nil {
			if e, ok := p.err.(*safetensors.ContainerError); ok && key != "" {
				e.Key = key
			}
			return
		}
		seen[key] = true
		h.Metadata = append(h.Metadata, Pair{key, value})
	}
}

func checkKey(key string) string {
	switch {
	case key == "":
		return "a key is empty"
	case len(key) >= maxKey:
		return fmt.Sprintf("a key has %d bytes, and at most %d are allowed", len(key), maxKey-1)
	case strings.ContainsRune(key, 0):
		return "a key has a NUL in it"
	}
	return ""
}

// alignment returns the alignment according to the metadata.
func (p *parser) alignment(h *header) int64 {
	a, problem := alignment(h.Metadata)
	if p.err == nil && problem != "" {
		p.err = &safetensors.ContainerError{Key: alignmentKey, Offset: -1, Problem: problem, Fix: fixDamaged}
	}
	return a
}

func alignment(metadata []Pair) (a int64, problem string) {
	i := slices.IndexFunc(metadata, func(p Pair) bool { return p.Key == alignmentKey })
	if i < 0 {
		return defaultAlignment, ""
	}
	value, ok := metadata[i].Value.(uint32)
	if !ok || bits.OnesCount32(value) != 1 {
		return defaultAlignment, fmt.Sprintf("the alignment is %v (%T), and must be a power of two of type uint32", metadata[i].Value,
			metadata[i].Value)
	}
	return int64(value), ""
}

// tensors reads n tensor infos and returns their offsets.
func (p *parser) tensors(h *header, n uint64) (offsets []uint64) {
	seen := map[string]bool{}
	for range n {
		start := p.at
		t := TensorInfo{Name: p.string()}
		dimensions := p.uint32()
		if p.err == nil && dimensions > maxDimensions {
			p.fail(fmt.Sprintf("%d dimensions, and at most %d are allowed", dimensions, maxDimensions), fixDamaged)
		}
		if p.err == nil {
			for range dimensions {
				t.Shape = append(t.Shape, int64(p.uint64()))
			}
			slices.Reverse(t.Shape)
		}
		t.Type = Type(p.uint32())
		offsets = append(offsets, p.uint64())
		if p.err == nil {
			size, problem := checkTensor(t)
			if problem == "" && seen[t.Name] {
				problem = "the name appears twice"
			}
			if problem != "" {
				p.failAt(start, problem, fixDamaged)
			}
			t.End = size
		}
		if p.err != nil {
			if e, ok := p.err.(*safetensors.ContainerError); ok {
				e.Tensor = t.Name
			}
			return nil
		}
		seen[t.Name] = true
		h.Tensors = append(h.Tensors, t)
	}
	return offsets
}

// checkTensor returns the bytes of a tensor, or the problem if it is invalid.
func checkTensor(t TensorInfo) (size int64, problem string) {
	switch {
	case t.Name == "":
		return 0, "the name is empty"
	case len(t.Name) > maxName:
		return 0, fmt.Sprintf("the name has %d bytes, and llama.cpp reads at most %d", len(t.Name), maxName)
	case strings.ContainsRune(t.Name, 0):
		return 0, "the name has a NUL in it"
	case len(t.Shape) > maxDimensions:
		return 0, fmt.Sprintf("%d dimensions, and at most %d are allowed", len(t.Shape), maxDimensions)
	case len(t.Shape) > 0 && slices.Min(t.Shape) < 0:
		return 0, fmt.Sprintf("shape %v has a negative dimension", t.Shape)
	case !t.Type.valid():
		return 0, fmt.Sprintf("type %d is not known", uint32(t.Type))
	}
	return t.Type.size(t.Shape)
}

// place sets the range of each tensor in the data; End holds the size. It checks that the
// range is that of the file and inside the file.
func place(h *header, offsets []uint64, dataStart, size int64) error {
	next := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		t.Begin = next
		if offsets[i] != uint64(next) {
			return &safetensors.ContainerError{Tensor: t.Name, Offset: -1, Fix: fixDamaged,
				Problem: fmt.Sprintf("it begins at byte %d of the data, and the tensors before it end at %d", offsets[i], next)}
		}
		if t.End > size-dataStart-next {
			return &safetensors.ContainerError{Tensor: t.Name, Offset: size, Problem: "the file ends before its data", Fix: fixTruncated}
		}
		t.End += next
		var err error
		if next, err = padded(t.End, h.Alignment); err != nil {
			return err
		}
	}
	if end := dataStart + next; size > end {
		return &safetensors.ContainerError{Offset: end, Problem: fmt.Sprintf("%d bytes follow the last tensor", size-end), Fix: fixDamaged}
	}
	return nil
}

// padded returns n rounded up to a multiple of the alignment.
func padded(n, alignment int64) (int64, error) {
	if n > math.MaxInt64-alignment {
		return 0, &safetensors.ContainerError{Offset: -1, Problem: "the file would exceed 2^63-1 bytes", Fix: fixSpec}
	}
	return (n + alignment - 1) / alignment * alignment, nil
}

// left returns the number of unread bytes of the file.
func (p *parser) left() int64 { return p.size - p.at }

func (p *parser) fail(problem, fix string) { p.failAt(p.at, problem, fix) }

func (p *parser) failAt(offset int64, problem, fix string) {
	if p.err == nil {
		p.err = &safetensors.ContainerError{Offset: offset, Problem: problem, Fix: fix}
	}
}

// bytes reads n bytes, at most 8. The result is valid until the next read.
func (p *parser) bytes(n int) []byte {
	b := p.buf[:n]
	if p.err == nil {
		p.full(b)
	}
	if p.err != nil {
		clear(b)
	}
	return b
}

// full fills b.
func (p *parser) full(b []byte) {
	n, err := io.ReadFull(p.r, b)
	p.at += int64(n)
	switch {
	case err == nil:
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		p.err = err
	case p.at < p.size:
		p.fail(fmt.Sprintf("the header has more than %d bytes", maxHeaderSize), fixForeign)
	default:
		p.fail("the file ends within the header", fixTruncated)
	}
}

func (p *parser) uint32() uint32 { return binary.LittleEndian.Uint32(p.bytes(4)) }

func (p *parser) uint64() uint64 { return binary.LittleEndian.Uint64(p.bytes(8)) }

// string reads a string in parts: the length may be wrong, and a large buffer wasted.
func (p *parser) string() string {
	n := p.uint64()
	if p.err == nil && n > uint64(p.left()) {
		p.fail(fmt.Sprintf("a string of %d bytes ends after the end of the file", n), fixTruncated)
	}
	if p.err != nil {
		return ""
	}
	const piece = 1 << 20
	var text []byte
	for n > 0 && p.err == nil {
		k := min(n, piece)
		text = slices.Grow(text, int(k))
		text = text[:len(text)+int(k)]
		p.full(text[len(text)-int(k):])
		n -= k
	}
	if p.err != nil {
		return ""
	}
	return string(text)
}
