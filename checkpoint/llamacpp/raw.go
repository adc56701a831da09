package llamacpp

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
)

// OpenRaw returns an open GGUF file of any architecture as a checkpoint with the names, the order of rows and the types that it has, and
// returns the content of the same file with other types: its metadata, but those that quantizing changes. The matrix of expert E
// in a tensor of all experts X.weight is X.E.weight. Types that package ggml decodes have their values in F32, and their bytes.
func OpenRaw(f *gguf.File) (*hf.Checkpoint, *Model, error) {
	c, v, err := newView(f, true)
	if err != nil {
		return nil, nil, err
	}
	m := &Model{raw: v.places}
	_, m.architecture = architectureOf(v.file)
	m.architecture.Name = v.described.Architecture
	for _, p := range v.file.Metadata {
		if !ofTypes.MatchString(p.Key) {
			m.Metadata = append(m.Metadata, p)
		}
	}
	if v.file.Value(versionKey) == nil {
		m.add(versionKey, quantizationVersion)
	}
	return c, m, nil
}

// ofTypes matches the keys that say how a file was quantized or split, and by whom.
var ofTypes = regexp.MustCompile(`^(general\.file_type$|quantize\.|split\.|microscale)`)

// versionKey is the key of the version of the structs of blocks (GGML_QNT_VERSION), which a file without blocks may lack.
const versionKey = "general.quantization_version"

const quantizationVersion = uint32(2)

// stackedExperts matches the names of tensors with a matrix for each expert.
var stackedExperts = regexp.MustCompile(`^blk\.\d+\.\w+_(ch)?exps\.weight$`)

// addRaw adds the tensors of a raw view for a tensor of the file.
func (v *view) addRaw(t gguf.TensorInfo, a architecture) {
	if w, ok := v.file.Lookup(strings.TrimSuffix(t.Name, scaleSuffix) + ".weight"); ok && w.Type == gguf.NVFP4 && strings.HasSuffix(t.Name,
		scaleSuffix) {
		return // part of the weight
	}
	place := Place{Name: t.Name, Type: t.Type, Unscaled: a.ignoresScale(t.Name)}
	if len(t.Shape) != 3 || !stackedExperts.MatchString(t.Name) {
		if original, ok := a.original(t.Name); ok && a.Name != "" {
			place.Names[0] = original
		}
		v.places[t.Name] = place
		v.addMatrix(t, t.Name, t.Shape, Place{Name: t.Name})
		return
	}
	originals := a.originals(t.Name, t.Shape)
	if originals == nil {
		originals = make([]string, t.Shape[0])
	}
	place.Experts = int(t.Shape[0])
	for e := range place.Experts {
		name := fmt.Sprintf("%s.%d.weight", strings.TrimSuffix(t.Name, ".weight"), e)
		place.Expert, place.Names = e, [2]string{originals[e], t.Name}
		v.places[name] = place
		v.addMatrix(t, name, t.Shape[1:], place)
	}
}
