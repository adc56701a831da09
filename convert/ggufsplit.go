package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// A ggufWhole is the content of a GGUF file, in one file or several.
type ggufWhole struct {
	layout   *gguf.Layout // of one file
	metadata []gguf.Pair  // without the record
}

// Split returns the same plan for llama.cpp with several files, as gguf-split divides one: model-00001-of-0000N.gguf and so on, in a
// directory. The tensors of a file have at most size bytes together, headers not counted. A tensor is never divided: one that is
// larger is alone in its file, with its scales. The first file has the metadata.
func (p *Plan) Split(size int64) (*Plan, error) {
	if p.whole == nil {
		return nil, fmt.Errorf("%s: only GGUF files are split: other checkpoints have the files of the source", p.source.Source.Path)
	}
	split := *p
	split.single, split.files, split.decisions = false, nil, slices.Clone(p.decisions)
	bounds, l := p.bounds(size), p.whole.layout
	fileOf := map[string]string{} // by tensor
	for no, to := range bounds[1:] {
		from, metadata := bounds[no], []gguf.Pair(nil)
		if no == 0 {
			metadata = p.whole.metadata
		}
		tensors := map[string]bool{}
		for _, t := range l.Tensors()[from:to] {
			tensors[t.Name] = true
		}
		placeholder := p.placeholder(to-from, func(d decision) bool { return tensors[d.stored[0].Name] })
		part, suffix, err := l.Part(no, len(bounds)-1, from, to, append(slices.Clone(metadata), gguf.Pair{Key: checksum.RecordKey,
			Value: placeholder}))
		if err != nil {
			return nil, fmt.Errorf("%s: split: %w", p.source.Source.Path, err)
		}
		contents, err := llamacpp.FileLayout(part)
		if err == nil {
			err = contents.Reserve(placeholder)
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(ggufName, gguf.Suffix) + suffix
		split.files = append(split.files, file{name, contents})
		for tensor := range tensors {
			fileOf[tensor] = name
		}
	}
	for i := range split.decisions {
		split.decisions[i].file = fileOf[split.decisions[i].stored[0].Name]
	}
	return &split, nil
}

// bounds returns the indices of the first tensors of the files, and the number of tensors. A file begins with a weight: its scales
// follow it, and the constants of the model precede the first one.
func (p *Plan) bounds(size int64) []int {
	weights := map[string]bool{}
	for _, d := range p.decisions {
		weights[d.stored[0].Name] = true
	}
	tensors := p.whole.layout.Tensors()
	var starts []int // of weights with what belongs to them
	for i, t := range tensors {
		if weights[t.Name] {
			starts = append(starts, i)
		}
	}
	starts[0] = 0
	bounds := []int{0}
	for k, start := range starts[1:] {
		last := len(tensors) - 1
		if k+2 < len(starts) {
			last = starts[k+2] - 1
		}
		if tensors[last].End-tensors[bounds[len(bounds)-1]].Begin > size {
			bounds = append(bounds, start)
		}
	}
	return append(bounds, len(tensors))
}

// ggufPart matches the names of the files of a split plan.
var ggufPart = regexp.MustCompile("^" + strings.TrimSuffix(ggufName, gguf.Suffix) + `-\d{5}-of-\d{5}\` + gguf.Suffix + "$")

// firstPart returns the path of the first part of a split GGUF file if a directory has the parts of one model; "" otherwise.
func firstPart(dir string) string {
	entries, _ := os.ReadDir(dir) // who opens it as another checkpoint gets the error
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if first := llamacpp.FirstPart(names); first != "" {
		return filepath.Join(dir, first)
	}
	return ""
}
