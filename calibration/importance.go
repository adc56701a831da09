package calibration

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/limits"
)

// An importance matrix of llama.cpp, its imatrix, has statistics of inputs by the tensors of a GGUF file that read them: as a GGUF file of
// llama-imatrix, or in the form before that (.dat). Values are those that llama-quantize takes (load_imatrix in tools/quantize).
type importance map[string]entry

// An entry has the mean square of each column, for each matrix of a tensor one after the other.
type entry struct {
	squares []float32
	tokens  []int64 // of each matrix; in the old form one number for all
}

// Keys and suffixes of tensors of a GGUF file, and keys that llama-quantize writes to its results.
const (
	typeKey        = "general.type"
	importanceType = "imatrix"
	datasetsKey    = "imatrix.datasets"
	chunksKey      = "imatrix.chunk_count"
	chunkSizeKey   = "imatrix.chunk_size"
	sumsSuffix     = ".in_sum2"
	countsSuffix   = ".counts"
	recordPrefix   = "quantize.imatrix."
)

// ofImportance reports whether a file has the content of an importance matrix: that of a GGUF file, or the beginning of the old form.
func ofImportance(path string) bool {
	f, info, err := limits.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	r := newOldReader(f, info.Size())
	if magic, err := r.Peek(4); err != nil || string(magic) == "GGUF" {
		return err == nil
	}
	entries, name := r.int32(), r.name()
	return r.err == nil && entries > 0 && strings.HasSuffix(name, ".weight")
}

// readImportance reads an importance matrix.
func readImportance(path string) (*Statistics, error) {
	s := &Statistics{importance: importance{}}
	f, info, err := limits.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	r := newOldReader(f, info.Size())
	var datasets []string
	var chunks uint32
	if magic, _ := r.Peek(4); string(magic) == "GGUF" {
		g, openErr := gguf.Open(path)
		if openErr != nil {
			return nil, openErr
		}
		datasets, chunks, err = s.importance.readGGUF(g)
		err = errors.Join(err, g.Close())
	} else {
		datasets, chunks, err = s.importance.readOld(r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.importance)) {
		fmt.Fprintf(digest, "%q", name)
		digest.Write(floatBytes(s.importance[name].squares))
	}
	s.identity = hex.EncodeToString(digest.Sum(nil)[:16])
	s.record = append(s.record, gguf.Pair{Key: recordPrefix + "file", Value: filepath.Base(path)})
	if len(datasets) > 0 {
		s.record = append(s.record, gguf.Pair{Key: recordPrefix + "dataset", Value: datasets[0]})
	}
	s.record = append(s.record, gguf.Pair{Key: recordPrefix + "entries_count", Value: uint32(len(s.importance))})
	if chunks > 0 {
		s.record = append(s.record, gguf.Pair{Key: recordPrefix + "chunks_count", Value: chunks})
	}
	return s, nil
}

// readGGUF reads the form of llama-imatrix.
func (m importance) readGGUF(f *gguf.File) (datasets []string, chunks uint32, err error) {
	if kind, _ := f.Value(typeKey).(string); kind != importanceType {
		return nil, 0, fmt.Errorf("its %s is %q: name an importance matrix, whose type is %q", typeKey, limits.Text(kind), importanceType)
	}
	for _, t := range f.Tensors {
		name, ok := strings.CutSuffix(t.Name, sumsSuffix)
		if !ok {
			if name, ok = strings.CutSuffix(t.Name, countsSuffix); ok {
				if _, both := f.Lookup(name + sumsSuffix); !both {
					return nil, 0, fmt.Errorf("%s has %s and no %s: make it again", limits.Text(name), countsSuffix, sumsSuffix)
				}
			}
			continue
		}
		c, ok := f.Lookup(name + countsSuffix)
		if !ok {
			return nil, 0, fmt.Errorf("%s has %s and no %s: make it again", limits.Text(name), sumsSuffix, countsSuffix)
		}
		sums, err := floats(f, t)
		if err != nil {
			return nil, 0, err
		}
		counts, err := floats(f, c)
		if err != nil {
			return nil, 0, err
		}
		if len(counts) == 0 || len(sums) == 0 || len(sums)%len(counts) != 0 {
			return nil, 0, fmt.Errorf("%s has %d sums and %d counts, want a multiple: make it again", limits.Text(name), len(sums), len(counts))
		}
		e := entry{squares: sums}
		width := len(sums) / len(counts)
		for i, count := range counts {
			if !(count >= 0 && count < 1<<62) {
				return nil, 0, fmt.Errorf("%s: the count of matrix %d is %g, want a number of tokens: make it again", limits.Text(name), i, count)
			}
			e.tokens = append(e.tokens, int64(math.Ceil(float64(count)))) // 0 if it has none alone
			for j := i * width; j < (i+1)*width; j++ {
				if count > 0 {
					sums[j] /= count
				} else {
					sums[j] = 1
				}
			}
		}
		if err := m.add(name, e); err != nil {
			return nil, 0, err
		}
	}
	if len(m) == 0 {
		return nil, 0, fmt.Errorf("it has no tensor NAME%s: make it again", sumsSuffix)
	}
	datasets, _ = f.Value(datasetsKey).([]string)
	return datasets, uint32(f.Count(chunksKey)), nil
}

// floats reads a tensor of F32 values.
func floats(f *gguf.File, t gguf.TensorInfo) ([]float32, error) {
	if t.Type != gguf.F32 {
		return nil, fmt.Errorf("%s is %s, want F32: make it again", limits.Text(t.Name), t.Type)
	}
	raw := make([]byte, t.Bytes())
	if err := f.ReadTensorAt(raw, t, 0); err != nil {
		return nil, err
	}
	values := make([]float32, len(raw)/4)
	_, err := binary.Decode(raw, binary.LittleEndian, values)
	return values, err
}

// add adds the entry of a tensor.
func (m importance) add(name string, e entry) error {
	if _, twice := m[name]; twice {
		return fmt.Errorf("%s has two entries: make it again", limits.Text(name))
	}
	for i, v := range e.squares {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fmt.Errorf("%s: the mean square of column %d is %g, want a finite number: make it again", limits.Text(name), i, v)
		}
	}
	m[name] = e
	return nil
}

// An oldReader reads the old form: int32 numbers, names after their length, and values. The first error is kept.
type oldReader struct {
	*bufio.Reader
	left int64
	err  error
}

func newOldReader(r io.Reader, size int64) *oldReader {
	return &oldReader{bufio.NewReader(r), size, nil}
}

// bytes reads n bytes, which are in the file.
func (r *oldReader) bytes(n int64) []byte {
	if r.err == nil && (n < 0 || n > r.left) {
		r.err = fmt.Errorf("%d bytes are missing at its end: fetch it again", n-r.left)
	}
	if r.err != nil {
		return make([]byte, 4)
	}
	r.left -= n
	b := make([]byte, n)
	_, r.err = io.ReadFull(r, b)
	return b
}

func (r *oldReader) int32() int32 { return int32(binary.LittleEndian.Uint32(r.bytes(4))) }

// maxName is the size of the longest name or dataset that is read.
const maxName = 1 << 16

// name reads a name.
func (r *oldReader) name() string {
	n := r.int32()
	if r.err == nil && (n < 0 || n > maxName) {
		r.err = fmt.Errorf("a name has %d bytes: it is damaged, or no importance matrix", n)
	}
	if r.err != nil {
		return ""
	}
	return string(r.bytes(int64(n)))
}

// readOld reads the form before GGUF: entries, each a name, the number of calls, and for each column the mean square times that number.
// Behind them may be the number of chunks and the name of the dataset.
func (m importance) readOld(r *oldReader) (datasets []string, chunks uint32, err error) {
	for range r.int32() {
		name, calls, n := r.name(), r.int32(), r.int32()
		if r.err == nil && (calls < 0 || n <= 0) {
			r.err = fmt.Errorf("%s has %d calls and %d values: it is damaged", limits.Text(name), calls, n)
		}
		raw := r.bytes(4 * int64(n))
		if r.err != nil {
			return nil, 0, r.err
		}
		e := entry{squares: make([]float32, n), tokens: []int64{int64(max(1, calls))}}
		if _, err := binary.Decode(raw, binary.LittleEndian, e.squares); err != nil {
			return nil, 0, err
		}
		for i := range e.squares {
			e.squares[i] /= float32(max(1, calls))
		}
		if err := m.add(name, e); err != nil {
			return nil, 0, err
		}
	}
	if r.err == nil && r.left > 0 {
		if chunks = uint32(r.int32()); r.left > 0 {
			datasets = append(datasets, r.name())
		}
	}
	if r.err == nil && len(m) == 0 {
		r.err = errors.New("it has no entries: make it again")
	}
	return datasets, chunks, r.err
}

// Record returns what llama-quantize writes of an importance matrix to the metadata of its results; nil for other statistics, whose
// inputs are those of modules.
func (s *Statistics) Record() []gguf.Pair { return s.record }

// Importance returns the input of one of the matrices of a tensor of a GGUF file, that all have a number of columns; nil if the
// importance matrix has no such tensor.
func (s *Statistics) Importance(tensor string, columns, matrices, index int) (*Input, error) {
	e, ok := s.importance[tensor]
	switch {
	case !ok:
		return nil, nil
	case len(e.squares) != columns*matrices, len(e.tokens) > 1 && len(e.tokens) != matrices:
		return nil, fmt.Errorf("the importance matrix has %d values for %s, in %d matrices, want %d in %d: it is of another model",
			len(e.squares), limits.Text(tensor), len(e.tokens), columns*matrices, matrices)
	}
	squares := e.squares[index*columns:][:columns:columns]
	return &Input{Modules: []string{tensor}, Tokens: e.tokens[min(index, len(e.tokens)-1)], Square: squares}, nil
}
