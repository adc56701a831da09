package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/limits"
)

// headerAlign is the multiple to which the reference writer pads headers with spaces. With its
// order of tensors, each tensor is then aligned to its dtype.
const headerAlign = 8

// A Spec is a tensor to be written.
type Spec struct {
	Name  string
	Dtype Dtype
	Shape []int64 // logical elements, outermost dimension first; empty means one element
}

// A Layout is the plan of a file: the bytes of its header and the offset of each tensor. It is
// immutable and safe for concurrent use.
type Layout struct {
	header *header
	prefix []byte         // length and header: the first bytes of the file
	data   int64          // bytes of the data buffer
	byName map[string]int // index into header.tensors

	from, to int // bytes of the prefix that are not known yet; see Reserve
}

// NewLayout plans a file as the reference writer does: tensors by decreasing
// alignment of their dtype (see [Dtype]) and then by name, metadata first in
// the header and its keys sorted, the header padded with spaces to a multiple
// of eight bytes. The order of the specs does not matter, and equal arguments
// give equal bytes. Empty metadata is left out.
//
// If [NewFile] would reject the header, the error is a [*ContainerError].
func NewLayout(tensors []Spec, metadata map[string]string) (*Layout, error) {
	l := &Layout{header: &header{}, byName: make(map[string]int, len(tensors))}
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, &ContainerError{Offset: -1, Problem: fmt.Sprintf("metadata %s is not valid UTF-8", limits.Quote(key)), Fix: "leave it out"}
		}
	}
	if len(metadata) > 0 {
		l.header.metadata = maps.Clone(metadata)
	}
	if err := l.arrange(tensors); err != nil {
		return nil, err
	}
	l.prefix = appendHeader(make([]byte, lengthSize), l.header)
	n := len(l.prefix) - lengthSize
	if n > maxHeaderSize {
		return nil, &ContainerError{Offset: -1, Problem: tooLarge(uint64(n)), Fix: "write fewer tensors or less metadata to a file"}
	}
	if l.dataSize() > math.MaxInt64-int64(len(l.prefix)) {
		return nil, &ContainerError{Offset: -1, Problem: "the file would exceed 2^63-1 bytes", Fix: fixTensor}
	}
	binary.LittleEndian.PutUint64(l.prefix, uint64(n))
	return l, nil
}

// writerOrder is the order of tensors in a file.
func writerOrder(a, b TensorInfo) int {
	return cmp.Or(cmp.Compare(b.Dtype, a.Dtype), cmp.Compare(a.Name, b.Name))
}

// arrange sorts the tensors and gives each its offsets.
func (l *Layout) arrange(specs []Spec) error {
	tensors := make([]TensorInfo, len(specs))
	for i, s := range specs {
		tensors[i] = TensorInfo{Name: s.Name, Dtype: s.Dtype, Shape: append([]int64{}, s.Shape...)}
	}
	slices.SortFunc(tensors, writerOrder)
	next := int64(0)
	for i := range tensors {
		t := &tensors[i]
		size, problem := checkSpec(*t)
		if _, twice := l.byName[t.Name]; problem == "" && twice {
			problem = "the name appears twice"
		}
		if problem == "" && size > math.MaxInt64-next {
			problem = "the file would exceed 2^63-1 bytes"
		}
		if problem != "" {
			return &ContainerError{Tensor: t.Name, Offset: -1, Problem: problem, Fix: fixTensor}
		}
		l.byName[t.Name] = i
		t.Begin, t.End = next, next+size
		next = t.End
	}
	l.header.tensors, l.data = tensors, next
	return nil
}

// checkSpec returns the bytes of a tensor, or the problem if it cannot be written.
func checkSpec(t TensorInfo) (size int64, problem string) {
	if problem := checkName(t.Name); problem != "" {
		return 0, problem
	}
	switch {
	case !utf8.ValidString(t.Name):
		return 0, "the name is not valid UTF-8"
	case !t.Dtype.valid():
		return 0, fmt.Sprintf("%v is not a dtype", t.Dtype)
	case len(t.Shape) > 0 && slices.Min(t.Shape) < 0:
		return 0, fmt.Sprintf("shape %s has a negative dimension", shortShape(t.Shape))
	}
	return t.Dtype.size(t.Shape)
}

// appendHeader appends the JSON of a header and its padding. b starts at the
// start of the file.
func appendHeader(b []byte, h *header) []byte {
	b = append(b, '{')
	if len(h.metadata) > 0 {
		b = append(b, `"`+metadataKey+`":{`...)
		for _, key := range slices.Sorted(maps.Keys(h.metadata)) {
			b = append(appendString(b, key), ':')
			b = append(appendString(b, h.metadata[key]), ',')
		}
		b = append(b[:len(b)-1], "},"...)
	}
	for _, t := range h.tensors {
		b = appendString(b, t.Name)
		b = append(b, `:{"dtype":"`...)
		b = append(b, t.Dtype.String()...)
		b = append(b, `","shape":`...)
		b = appendIntegers(b, t.Shape)
		b = append(b, `,"data_offsets":`...)
		b = appendIntegers(b, []int64{t.Begin, t.End})
		b = append(b, "},"...)
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	b = append(b, '}')
	for len(b)%headerAlign != 0 {
		b = append(b, ' ')
	}
	return b
}

func appendIntegers(b []byte, list []int64) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return append(b, ']')
}

// appendString appends a JSON string with the escapes of the reference writer's library: short
// escapes where they exist, \u00xx for other control characters. (encoding/json would also
// escape <, > and &.)
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0 // start of the bytes not yet in b
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(append(b, s[from:]...), '"')
}

// Metadata returns the metadata of the file, or nil if there is none. The caller must not modify
// it.
func (l *Layout) Metadata() map[string]string { return l.header.metadata }

// Tensors returns the tensors in the order of their data. The caller must not modify them.
func (l *Layout) Tensors() []TensorInfo { return l.header.tensors }

// HeaderBytes returns the start of the file, up to the data buffer: the length and the padded
// header. The caller must not modify it.
func (l *Layout) HeaderBytes() []byte { return l.prefix }

// Lookup returns the tensor of a name.
func (l *Layout) Lookup(name string) (TensorInfo, bool) {
	i, ok := l.byName[name]
	if !ok {
		return TensorInfo{}, false
	}
	return l.header.tensors[i], true
}

// Offset returns the byte offset in the file of a tensor's data.
func (l *Layout) Offset(name string) (int64, bool) {
	t, ok := l.Lookup(name)
	if !ok {
		return 0, false
	}
	return int64(len(l.prefix)) + t.Begin, true
}

// FileSize returns the size of the finished file in bytes.
func (l *Layout) FileSize() int64 { return int64(len(l.prefix)) + l.dataSize() }

func (l *Layout) dataSize() int64 { return l.data }
