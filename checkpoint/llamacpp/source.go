package llamacpp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// FirstPart returns the first part of a split model from the names of a folder, if this is the only one, and there are no safetensors
// files; "" otherwise.
func FirstPart(names []string) (found string) {
	for _, name := range names {
		first := strings.Contains(name, "-00001-of-") && gguf.Named(name)
		if first && found != "" || strings.HasSuffix(name, safetensors.Suffix) {
			return ""
		}
		if first {
			found = name
		}
	}
	return found
}

// Open opens a GGUF file as a checkpoint of a single file. That of a known architecture has the
// configuration, the names and the row order of the Hugging Face checkpoint; quantized tensors have the
// layout of convention plain. Tensors of types that package ggml decodes have their values in F32.
// Tensors of other types are bytes. checkpoint.Read recognizes the result (checkpoint.GGUFView) and
// reports those types.
func Open(path string) (*hf.Checkpoint, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	return View(f)
}

// View is Open for an open file, which may be on a server. Close of the checkpoint closes it; so does View on error.
func View(f *gguf.File) (*hf.Checkpoint, error) {
	c, _, err := newView(f, false)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.OnClose(f.Close)
	return c, nil
}

// newView returns a file as a checkpoint, as [View] does, or as [OpenRaw] does.
func newView(f *gguf.File, raw bool) (*hf.Checkpoint, *view, error) {
	v := &view{file: f, metadata: map[string]string{}}
	if raw {
		v.places = map[string]Place{}
	}
	if err := v.build(); err != nil {
		return nil, nil, err
	}
	source, err := hf.OpenFile(v.plain, v.config, v.fileOf())
	if err != nil {
		return nil, nil, err
	}
	source.GGUF = f
	source.OnDamaged(func(ctx context.Context, progress func(int64)) ([]string, error) { return damaged(ctx, f, progress) })
	return source, v, nil
}

// fileOf returns a function from tensors of the view to the names of their files, if the model is split; nil otherwise.
func (v *view) fileOf() func(tensor string) string {
	if len(v.file.Parts()) == 1 {
		return nil
	}
	files := map[string]string{}
	for _, p := range v.file.Parts() {
		for _, t := range p.Tensors {
			files[t.Name] = filepath.Base(p.Name())
		}
	}
	return func(tensor string) string { // values that no tensor has follow from the metadata
		return cmp.Or(files[v.parts[tensor].tensor.Name], filepath.Base(v.file.Parts()[0].Name()))
	}
}

// blockTypes maps the supported block types to block formats.
var blockTypes = map[gguf.Type]quant.Format{gguf.MXFP4: quant.MXFP4, gguf.NVFP4: quant.NVFP4, gguf.Q8_0: quant.Q8_0}

// structsOf returns the structs of the blocks of a type; the zero Struct if it has none or is
// unsupported.
func structsOf(t gguf.Type) ggml.Struct {
	structs, _ := checkpoint.GGUF().Struct(blockTypes[t])
	return structs
}

// denseTypes maps types without blocks to dtypes.
var denseTypes = map[string]safetensors.Dtype{
	"F32": safetensors.F32, "F16": safetensors.F16, "BF16": safetensors.BF16, "F64": safetensors.F64,
	"I8": safetensors.I8, "I16": safetensors.I16, "I32": safetensors.I32, "I64": safetensors.I64,
}

// A view presents a GGUF file as a safetensors file: with a synthesized header, and with tensors
// whose bytes are assembled as they are read.
type view struct {
	file      *gguf.File
	metadata  map[string]string
	specs     []safetensors.Spec
	parts     map[string]part // by the name of the tensor of the view
	layout    *safetensors.Layout
	plain     *safetensors.File
	described checkpoint.GGUFView
	config    []byte           // the config.json that follows from the metadata; nil for an unknown architecture, and if the view is raw
	places    map[string]Place // of the tensors of a raw view (OpenRaw); nil for others
}

// A part is the bytes of a tensor of the view.
type part struct {
	tensor gguf.TensorInfo
	other  *gguf.TensorInfo // has the odd rows, and tensor the even ones; nil: there is one tensor
	rows   int64            // of each of the two
	heads  int64            // tensor and other have the keys and values of these heads; 0: they are no such matrices
	value  []byte           // the bytes, if they are not the tensor's
	from   int64            // offset and size in the tensor, in bytes
	size   int64
	place  Place
	unit   int // bytes of the view for each struct or block of the file; 0: rows are unchanged
	kind   checkpoint.Part
	values *values // nil: the bytes are rearranged, not decoded
}

// values are blocks whose values the view has in F32.
type values struct {
	elements, bytes int // of a block
	decode          func(dst []float32, blocks []byte)
}

// valuesOf returns how a type of ggml is decoded, nil for an unsupported one.
func valuesOf(t gguf.Type) *values {
	q, err := ggml.LookupQuant(t.String())
	if err != nil {
		return nil
	}
	return &values{q.Elements, q.Bytes, q.Decode}
}

// lowered returns the decoder of F32 values that exceed those of the checkpoint by a number, such as norms plus one.
func lowered(by float32) *values {
	return &values{1, 4, func(dst []float32, raw []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])) - by
		}
	}}
}

// bytes returns the size of the blocks that the part consists of.
func (p *part) bytes() int {
	if p.values != nil {
		return p.values.bytes
	}
	b := structsOf(p.tensor.Type)
	return b.Bytes()
}

// build synthesizes the header of the view.
func (v *view) build() error {
	v.parts = map[string]part{}
	_, a := architectureOf(v.file)
	for _, t := range v.file.Tensors {
		if v.places != nil {
			v.addRaw(t, a)
		} else {
			v.addTensor(t, a)
		}
	}
	for _, p := range v.file.Metadata {
		if text, ok := p.Value.(string); ok && checkpoint.IsOwnMetadata(p.Key) {
			v.metadata[p.Key] = text
		}
	}
	v.described.Architecture, _ = v.file.Value("general.architecture").(string)
	v.described.Bytes = v.file.Size()
	var err error
	if v.places == nil {
		v.config, err = configuration(v.file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", v.file.Name(), err)
	}
	key, value := v.described.Metadata()
	v.metadata[key] = value
	if v.layout, err = safetensors.NewLayout(v.specs, v.metadata); err != nil {
		return fmt.Errorf("%s: %w", v.file.Name(), err)
	}
	v.plain, err = safetensors.NewFile(v, v.layout.FileSize(), v.file.Name())
	return err
}

// addTensor adds the tensors of the view for a tensor of the file: the matrices of each expert,
// if it holds all experts.
func (v *view) addTensor(t gguf.TensorInfo, a architecture) {
	if v.addJoined(t, a) || v.onesOf(t, a) || a.family.Latent && v.addLatent(t) {
		return
	}
	name, known := a.original(t.Name)
	names := a.originals(t.Name, t.Shape)
	switch {
	case a.Name != "" && (known || names != nil):
		if w, ok := v.file.Lookup(strings.TrimSuffix(t.Name, scaleSuffix) + ".weight"); ok && w.Type == gguf.NVFP4 && strings.HasSuffix(t.Name,
			scaleSuffix) {
			return // part of the weight
		}
		if !known {
			name = t.Name
		}
	case a.Name != "" && t.Name == ropeFactors, a.LongRope && (t.Name == shortFactors || t.Name == longFactors):
		return // it follows from the configuration
	default:
		name = t.Name
	}
	if len(names) > 0 && len(t.Shape) == 3 {
		for e, name := range names {
			v.addMatrix(t, name, t.Shape[1:], Place{Name: t.Name, Experts: len(names), Expert: e})
		}
		return
	}
	place, shape := Place{Name: t.Name, Add: a.above(t.Name)}, t.Shape
	if a.Permuted && (strings.Contains(t.Name, ".attn_q.") || strings.Contains(t.Name, ".attn_k.")) {
		place.HeadDim = v.headDim(a, t)
	}
	if known && isSharedRouter(t.Name) && len(shape) == 1 {
		shape = []int64{1, shape[0]}
	}
	v.addMatrix(t, name, shape, place)
}

// addMatrix adds a tensor of the file, or the part of one expert.
func (v *view) addMatrix(t gguf.TensorInfo, name string, shape []int64, place Place) {
	size := t.Bytes() / int64(max(1, place.Experts))
	v.addPart(part{tensor: t, from: int64(place.Expert) * size, size: size}, name, shape, place)
}

// addPart adds the tensors of the view for a part of the file.
func (v *view) addPart(whole part, name string, shape []int64, place Place) {
	t, size := whole.tensor, whole.size
	add := func(s safetensors.Spec, p part) {
		if p.value == nil && p.tensor.Name == t.Name {
			p.place = place
		}
		v.specs, v.parts[s.Name] = append(v.specs, s), p
	}
	if f, ok := blockTypes[t.Type]; ok && len(shape) > 1 {
		plain, structs := checkpoint.Plain(), structsOf(t.Type)
		key, value, _ := plain.Metadata(f, name, shape, safetensors.BF16)
		v.metadata[key] = value
		for _, s := range plain.Stored(f, name, shape) {
			p := whole
			p.kind, p.unit = s.Part, structs.Blocks*f.Scale.StoredBits()/8
			if s.Part == checkpoint.Codes {
				p.unit = structs.Blocks * structs.CodeBytes()
			} else if s.Part == checkpoint.Global {
				p = part{value: checkpoint.GlobalBytes(1)}
				if scale, ok := v.file.Lookup(ScaleName(t.Name)); ok && scale.Type == gguf.F32 && scale.Bytes() == 4*int64(max(1, place.Experts)) {
					p = part{tensor: scale, from: 4 * int64(place.Expert), size: 4}
				}
			}
			add(s.Spec, p)
		}
		return
	}
	if place.Add != 0 && t.Type == gguf.F32 {
		whole.values, whole.unit = lowered(place.Add), 4
	}
	if dtype, ok := denseTypes[t.Type.String()]; ok {
		add(safetensors.Spec{Name: name, Dtype: dtype, Shape: shape}, whole)
		return
	}
	if decoded := valuesOf(t.Type); decoded != nil {
		d := checkpoint.DecodedType{Tensor: name, Type: t.Type.String(), Bytes: size}
		if v.places != nil {
			d.Blocks = name + " in " + d.Type
			add(safetensors.Spec{Name: d.Blocks, Dtype: safetensors.U8, Shape: []int64{size}}, whole)
		}
		v.described.Decoded = append(v.described.Decoded, d)
		whole.values, whole.unit = decoded, 4*decoded.elements
		add(safetensors.Spec{Name: name, Dtype: safetensors.F32, Shape: shape}, whole)
		return
	}
	v.described.Unread = append(v.described.Unread, checkpoint.UnreadType{Tensor: name, Type: t.Type.String()})
	place.HeadDim = 0
	add(safetensors.Spec{Name: name, Dtype: safetensors.U8, Shape: []int64{size}}, whole)
}

// headDim returns the rows of an attention head of queries or keys; 0 if the metadata lacks it,
// or the rows are not whole heads.
func (v *view) headDim(a architecture, t gguf.TensorInfo) int {
	d := a.headDim(v.file)
	if d <= 0 || d%2 != 0 || len(t.Shape) == 0 || t.Shape[0]%int64(d) != 0 {
		return 0
	}
	return d
}

// ReadAt reads the view as [io.ReaderAt] does.
func (v *view) ReadAt(p []byte, off int64) (n int, err error) {
	head := v.layout.HeaderBytes()
	if off < int64(len(head)) {
		n = copy(p, head[off:])
	}
	for n < len(p) {
		at := off + int64(n) - int64(len(head))
		t, ok := v.tensorAt(at)
		if !ok {
			return n, fmt.Errorf("%s: byte %d is after the end", v.file.Name(), off)
		}
		k := int(min(int64(len(p)-n), t.End-at))
		if err := v.read(v.parts[t.Name], p[n:n+k], at-t.Begin); err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// tensorAt returns the tensor of the view that has the byte at an offset in its data.
func (v *view) tensorAt(at int64) (t safetensors.TensorInfo, ok bool) {
	tensors := v.layout.Tensors()
	i, _ := slices.BinarySearchFunc(tensors, at, func(t safetensors.TensorInfo, at int64) int {
		if t.End <= at {
			return -1
		}
		return 1
	})
	if i == len(tensors) {
		return t, false
	}
	return tensors[i], true
}

// Changed returns an error if the file was replaced or modified since it was opened.
func (v *view) Changed() error { return v.file.Changed() }

// Identity identifies the content of a file on a server; it is "" for others.
func (v *view) Identity() string { return v.file.Identity() }

// read fills dst with bytes of a part from offset off on, row by row.
func (v *view) read(p part, dst []byte, off int64) error {
	switch {
	case p.value != nil:
		copy(dst, p.value[off:])
		return nil
	case p.heads > 0:
		return v.readLatent(p, dst, off)
	case p.other != nil:
		return v.readJoined(p, dst, off)
	}
	row := p.size // bytes of the file; the whole part if rows are not reordered
	if p.place.HeadDim > 0 {
		row /= p.tensor.Shape[0]
	}
	out := row // bytes of a row of the view
	if p.unit > 0 {
		out = row / int64(p.bytes()) * int64(p.unit)
	}
	for len(dst) > 0 {
		r, in := off/out, off%out
		n := min(int64(len(dst)), out-in)
		if err := v.readRow(p, dst[:n], p.from+int64(p.place.Row(int(r)))*row, in); err != nil {
			return err
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// readRow fills dst with bytes of a row from offset in on. The row begins at start in the tensor
// of the file.
func (v *view) readRow(p part, dst []byte, start, in int64) error {
	if p.unit == 0 {
		return v.file.ReadTensorAt(dst, p.tensor, start+in)
	}
	unit, size := int64(p.unit), int64(p.bytes())
	first, last := in/unit, (in+int64(len(dst))+unit-1)/unit
	n := int(last - first)
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	if err := b.read(v.file, p.tensor, start+first*size, int64(n)*size); err != nil {
		return err
	}
	whole, err := p.convert(b, n)
	copy(dst, whole[in-first*unit:])
	return err
}

// A buffer is the memory for bytes of the file and for their conversion.
type buffer struct {
	raw, codes, scales, halves []byte
	values                     []float32
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// resize returns n elements in the memory of b, if that is large enough.
func resize[T any](b []T, n int) []T { return slices.Grow(b[:0], n)[:n] }

// read sets b.raw to n bytes of a tensor from offset off on.
func (b *buffer) read(f *gguf.File, t gguf.TensorInfo, off, n int64) error {
	b.raw = resize(b.raw, int(n))
	return f.ReadTensorAt(b.raw, t, off)
}

// separate sets codes and scales to those of structs. Scales of two bytes become FP32.
func (b *buffer) separate(s ggml.Struct, codes, scales, structs []byte) {
	if s.ScaleBytes == 1 {
		s.Deinterleave(codes, scales, structs)
		return
	}
	b.halves = resize(b.halves, len(structs)/s.Bytes()*s.Blocks*s.ScaleBytes)
	s.Deinterleave(codes, b.halves, structs)
	checkpoint.FromHalves(scales, b.halves)
}

// convert returns the bytes of the view for n structs or blocks in b.raw.
func (p *part) convert(b *buffer, n int) ([]byte, error) {
	if p.values != nil {
		b.values = resize(b.values, n*p.values.elements)
		p.values.decode(b.values, b.raw)
		b.codes = resize(b.codes, 4*len(b.values))
		return b.codes, tensor.ToBytes(b.codes, b.values, format.F32)
	}
	s := structsOf(p.tensor.Type)
	blocks, f := n*s.Blocks, blockTypes[p.tensor.Type]
	b.codes, b.scales = resize(b.codes, blocks*s.CodeBytes()), resize(b.scales, blocks*f.Scale.StoredBits()/8)
	b.separate(s, b.codes, b.scales, b.raw)
	if p.kind == checkpoint.Scales {
		return b.scales, nil
	}
	return b.codes, nil
}
