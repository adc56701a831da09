package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
)

// Keys of the parts of a split model, as llama.cpp writes them (gguf-split).
const (
	partKey    = "split.no"            // the first is 0
	partsKey   = "split.count"         //
	tensorsKey = "split.tensors.count" // of all parts
)

// partCount returns the number of parts of the model, 0 if it is not split.
func (f *File) partCount() int { return f.integer(partsKey) }

// integer returns the value of a key that is an integer, 0 if there is none.
func (f *File) integer(key string) int {
	switch n := f.Value(key).(type) {
	case uint8:
		return int(n)
	case uint16:
		return int(n)
	case int32:
		return int(n)
	case uint32:
		return int(n)
	}
	return 0
}

// Suffix ends the names of GGUF files.
const Suffix = ".gguf"

// Named reports whether a path names a GGUF file: its name decides, in letters of any case, since the file may not exist yet.
func Named(path string) bool { return strings.HasSuffix(strings.ToLower(path), Suffix) }

// partName is the end of the name of a part, as of anyPart.
var partName = regexp.MustCompile(`-(\d{5})-of-(\d{5})((?i:` + regexp.QuoteMeta(Suffix) + `))$`)

const anyPart = "-00000-of-00000" + Suffix

// partPath returns the path of a part beside another one, whose name ends as partName.
func partPath(path string, part, parts int) string {
	return partName.ReplaceAllString(path, fmt.Sprintf("-%05d-of-%05d${3}", part+1, parts))
}

// Part returns the layout of part no of a model in several files, as gguf-split of llama.cpp writes it, and the end of its name. The part
// has the tensors from index from to index to, exclusive, of l, which is the layout of the model in one file, and the metadata given:
// those of the model in part 0, and none in others. Keys of the split are added.
func (l *Layout) Part(no, parts, from, to int, metadata []Pair) (part *Layout, suffix string, err error) {
	if no < 0 || no >= parts || parts > math.MaxUint16 {
		return nil, "", fmt.Errorf("part %d of a model in %d files: at most %d files are possible: make them larger", no+1, parts, math.MaxUint16)
	}
	var specs []Spec
	for _, t := range l.header.Tensors[from:to] {
		specs = append(specs, Spec{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	part, err = NewLayout(specs, append(slices.Clone(metadata), Pair{partKey, uint16(no)}, Pair{partsKey, uint16(parts)},
		Pair{tensorsKey, int32(len(l.header.Tensors))}))
	return part, partPath(anyPart, no, parts), err
}

// openParts returns the model of which f is a part; open opens the others. On error, it closes f.
func (f *File) openParts(open func(string) (*File, error)) (result *File, err error) {
	n, own := f.partCount(), f.integer(partKey)
	fail := func(problem, fix string) (*File, error) {
		return nil, &safetensors.ContainerError{Path: f.name, Offset: -1, Problem: problem, Fix: fix}
	}
	whole, headers := &File{name: f.name, byName: map[string]int{}}, int64(0)
	defer func() {
		if err != nil {
			for _, p := range append(whole.parts, f) {
				_ = p.Close() // of files that are only read
			}
		}
	}()
	if partPath(f.name, own, n) != f.name || !partName.MatchString(f.name) {
		return fail(fmt.Sprintf("it is part %d of a model in %d files, and its name does not end in %s", own+1, n,
			partPath(anyPart, own, n)),
			"give the parts the names that llama.cpp writes, side by side")
	}
	for i := range n {
		p := f
		if i != own {
			path := partPath(f.name, i, n)
			switch p, err = open(path); {
			case errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("%s: it is part %d of a model in %d files, and part %d is missing: fetch all parts: %w", f.name, own+1, n, i+1,
					err)
			case err != nil:
				return nil, err
			}
		}
		whole.parts = append(whole.parts, p)
		if p.integer(partKey) != i || p.partCount() != n {
			return fail(fmt.Sprintf("%s says that it is part %d of %d", limits.Quote(p.name), p.integer(partKey)+1, p.partCount()),
				"fetch all parts of the same model")
		}
		if headers += p.dataStart; headers > maxHeaderSize {
			return fail(fmt.Sprintf("the headers of its parts have more than %d bytes together", maxHeaderSize), fixForeign)
		}
		if err = whole.addPart(i, p); err != nil {
			return nil, err
		}
	}
	if want := f.integer(tensorsKey); want != len(whole.Tensors) {
		return fail(fmt.Sprintf("its parts have %d tensors together, and it says %d", len(whole.Tensors), want),
			"fetch all parts of the same model")
	}
	first := whole.parts[0]
	whole.Version, whole.Alignment = first.Version, first.Alignment
	for _, p := range first.Metadata {
		if !strings.HasPrefix(p.Key, "split.") {
			whole.Metadata = append(whole.Metadata, p)
		}
	}
	return whole, nil
}

// addPart adds the tensors of a part.
func (f *File) addPart(part int, p *File) error {
	f.size += p.size
	for _, t := range p.Tensors {
		if _, twice := f.byName[t.Name]; twice {
			return &safetensors.ContainerError{Path: p.name, Tensor: t.Name, Offset: -1, Problem: "another part has the tensor, too",
				Fix: "fetch all parts of the same model"}
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors, f.part = append(f.Tensors, t), append(f.part, part)
	}
	return nil
}
