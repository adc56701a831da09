package calibration

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/durable"
)

// WriteImportance writes an importance matrix as llama-imatrix does, which [Read] and llama-quantize read: for each tensor of a GGUF file
// the sums of the squares of each column, and the tokens. A tensor has one input for each of its matrices; one without tokens, of an
// expert, counts as one token with its mean squares. dataset is the name of the text, which has that many windows of that many tokens. It
// never replaces a file: the error is fs.ErrExist then.
func WriteImportance(path string, tensors map[string][]*Input, dataset string, windows, tokens int) error {
	var specs []gguf.Spec
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		n := int64(len(tensors[name]))
		specs = append(specs, gguf.Spec{Name: name + sumsSuffix, Type: gguf.F32, Shape: []int64{n, int64(tensors[name][0].Width())}},
			gguf.Spec{Name: name + countsSuffix, Type: gguf.F32, Shape: []int64{n, 1}})
	}
	l, err := gguf.NewLayout(specs, []gguf.Pair{{Key: typeKey, Value: importanceType}, {Key: datasetsKey, Value: []string{dataset}},
		{Key: chunksKey, Value: uint32(windows)}, {Key: chunkSizeKey, Value: uint32(tokens)}})
	if err != nil {
		return err
	}
	return durable.WriteStream(path, func(w io.Writer) error {
		at := int64(len(l.HeaderBytes()))
		_, err := w.Write(l.HeaderBytes())
		for _, t := range l.Tensors() {
			begin, _ := l.Offset(t.Name)
			if err == nil {
				_, err = w.Write(make([]byte, begin-at))
			}
			if err == nil {
				err = binary.Write(w, binary.LittleEndian, importanceValues(t.Name, tensors))
			}
			at = begin + t.Bytes()
		}
		if err == nil {
			_, err = w.Write(make([]byte, l.FileSize()-at))
		}
		return err
	}, durable.RenameNew)
}

// importanceValues returns the elements of a tensor of an importance matrix.
func importanceValues(name string, tensors map[string][]*Input) (values []float32) {
	name, counts := strings.CutSuffix(name, countsSuffix)
	for _, in := range tensors[strings.TrimSuffix(name, sumsSuffix)] {
		tokens := float32(max(1, in.Tokens))
		if counts {
			values = append(values, tokens)
			continue
		}
		for _, v := range in.Square {
			values = append(values, v*tokens)
		}
	}
	return values
}
