package checksum

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/safetensors"
)

// RecordKey is the metadata key of a [Record], in safetensors and GGUF files.
const RecordKey = "microscale_record"

// A Record identifies the content of a file and its source. Readers that do not know it ignore
// it, like all metadata.
type Record struct {
	Plan    string   // 32 hexadecimal digits by which the writer knows the file: of a conversion and its options, or of other metadata
	Tensors []uint64 // checksums of the tensors of the file, in the order of their data
	Source  []uint64 // checksums of the values that were read from the source
}

const version = "1"

// PlanDigits is the length of Record.Plan.
const PlanDigits = 32

// String returns the record as a metadata value. Its length depends only on the numbers of
// checksums.
func (r Record) String() string {
	b := fmt.Appendf(nil, "%s plan=%0*s tensors=", version, PlanDigits, r.Plan)
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
	if len(fields) != 4 || fields[0] != version {
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

// RecordOf returns the record of a file. ok is false if the file has none.
func RecordOf(f *safetensors.File) (r Record, ok bool, err error) {
	text, ok := f.Metadata()[RecordKey]
	if !ok {
		return Record{}, false, nil
	}
	if r, err = ParseRecord(text); err == nil && len(r.Tensors) != len(f.Tensors()) {
		err = fmt.Errorf("the record has checksums of %d tensors, want those of the %d in the file", len(r.Tensors), len(f.Tensors()))
	}
	if err != nil {
		err = &safetensors.ContainerError{Path: f.Name(), Offset: -1, Problem: err.Error(), Fix: "write the file again"}
	}
	return r, true, err
}

// OfTensor reads a tensor of the file and returns its checksum.
func OfTensor(f *safetensors.File, info safetensors.TensorInfo) (uint64, error) {
	return Read(info.Bytes(), func(p []byte, off int64) error { return f.ReadTensorAt(p, info, off) })
}

// Read returns the checksum of size bytes. It calls read for consecutive ranges: read fills p
// with the bytes from offset off on.
func Read(size int64, read func(p []byte, off int64) error) (uint64, error) {
	s, buffer := New(size), make([]byte, min(1<<20, size))
	for off := int64(0); off < size; off += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), size-off)]
		if err := read(buffer, off); err != nil {
			return 0, err
		}
		s.Add(buffer, off)
	}
	return s.Value(), nil
}
