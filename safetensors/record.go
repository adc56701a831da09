package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// RecordKey is the metadata key of a [Record], in safetensors and GGUF files.
const RecordKey = "microscale_record"

// A Record identifies the content of a file and its source. Readers that do not know it ignore
// it, like all metadata.
type Record struct {
	Plan    string   // 32 hexadecimal digits that identify the conversion and its options
	Tensors []uint64 // checksums of the tensors of the file, in the order of their data
	Source  []uint64 // checksums of the values that were read from the source
}

const recordVersion = "1"

// PlanDigits is the length of Record.Plan.
const PlanDigits = 32

// String returns the record as a metadata value. Its length depends only on the numbers of
// checksums.
func (r Record) String() string {
	b := fmt.Appendf(nil, "%s plan=%0*s tensors=", recordVersion, PlanDigits, r.Plan)
	for _, sum := range r.Tensors {
		b = fmt.Appendf(b, "%016x", sum)
	}
	b = append(b, " source="...)
	for _, sum := range r.Source {
		b = fmt.Appendf(b, "%016x", sum)
	}
	return string(b)
}

// ParseRecord parses the result of [Record.String].
func ParseRecord(text string) (Record, error) {
	fields := strings.Split(text, " ")
	if len(fields) != 4 || fields[0] != recordVersion {
		return Record{}, errors.New("the record is damaged or of another version")
	}
	var r Record
	var err error
	plan, ok := strings.CutPrefix(fields[1], "plan=")
	tensors, tensorsOK := strings.CutPrefix(fields[2], "tensors=")
	source, sourceOK := strings.CutPrefix(fields[3], "source=")
	if !ok || !tensorsOK || !sourceOK || len(plan) != PlanDigits {
		return Record{}, errors.New("the record is damaged")
	}
	r.Plan = plan
	if r.Tensors, err = parseSums(tensors); err == nil {
		r.Source, err = parseSums(source)
	}
	return r, err
}

func parseSums(text string) (sums []uint64, err error) {
	const digits = 16
	if len(text)%digits != 0 {
		return nil, errors.New("the record is damaged")
	}
	for ; len(text) > 0; text = text[digits:] {
		sum, err := strconv.ParseUint(text[:digits], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("the record is damaged: %w", err)
		}
		sums = append(sums, sum)
	}
	return sums, nil
}

// Record returns the record of the file. ok is false if the file has none.
func (f *File) Record() (r Record, ok bool, err error) {
	text, ok := f.header.Metadata[RecordKey]
	if !ok {
		return Record{}, false, nil
	}
	if r, err = ParseRecord(text); err == nil && len(r.Tensors) != len(f.header.Tensors) {
		err = fmt.Errorf("the record is of %d tensors, and the file has %d", len(r.Tensors), len(f.header.Tensors))
	}
	if err != nil {
		err = &ContainerError{Path: f.name, Offset: -1, Problem: err.Error(), Fix: "write the file again"}
	}
	return r, true, err
}

// ChecksumOf reads a tensor of the file and returns its checksum.
func (f *File) ChecksumOf(info TensorInfo) (uint64, error) {
	return ReadSum(info.Bytes(), func(p []byte, off int64) error { return f.ReadTensorAt(p, info, off) })
}

// ReadSum returns the checksum of size bytes that read fills in, part by part.
func ReadSum(size int64, read func(p []byte, off int64) error) (uint64, error) {
	s, piece := NewSum(size), make([]byte, min(1<<20, size))
	for off := int64(0); off < size; off += int64(len(piece)) {
		piece = piece[:min(int64(len(piece)), size-off)]
		if err := read(piece, off); err != nil {
			return 0, err
		}
		s.Add(piece, off)
	}
	return s.Value(), nil
}

// Reserve marks bytes of the header as unknown: those of a placeholder, such as the metadata
// value of a Record of zeros, which must occur exactly once. [Writer.Fill] replaces them.
// Comparisons of files with the layout ignore them.
func (l *Layout) Reserve(placeholder string) error {
	if n := bytes.Count(l.prefix[lengthSize:], []byte(placeholder)); n != 1 {
		return fmt.Errorf("the placeholder %.40q is in the header %d times, not once", placeholder, n)
	}
	l.from = bytes.Index(l.prefix[lengthSize:], []byte(placeholder)) + lengthSize
	l.to = l.from + len(placeholder)
	return nil
}

// Filled returns the bytes that [Layout.Open] read where the layout reserves them.
func (f *File) Filled() string { return f.filled }

// fits reports whether head, the bytes of a file from byte from on, matches the layout's
// header, except for reserved bytes.
func (l *Layout) fits(head []byte, from int) bool {
	if len(head) != len(l.prefix)-from {
		return false
	}
	if l.to == 0 {
		return bytes.Equal(head, l.prefix[from:])
	}
	return bytes.Equal(head[:l.from-from], l.prefix[from:l.from]) && bytes.Equal(head[l.to-from:], l.prefix[l.to:])
}

// Fill writes the bytes that [Layout.Reserve] marked. value must have their length.
func (w *Writer) Fill(value string) error {
	if len(value) != w.layout.to-w.layout.from {
		return fmt.Errorf("%s: %d bytes for the %d that are reserved in its header", w.path, len(value), w.layout.to-w.layout.from)
	}
	if _, err := w.f.WriteAt([]byte(value), int64(w.layout.from)); err != nil {
		return ioError(w.path, place("", int64(w.layout.from)), err)
	}
	return nil
}
