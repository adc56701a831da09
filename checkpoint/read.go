package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
)

// A Model is a checkpoint read through its convention: the weights as they were before
// quantization, with the tensors that hold their parts.
type Model struct {
	Source     *hf.Checkpoint
	Convention *Convention // nil if nothing is quantized
	Scheme     string      // of the weights, by the name that clients use; "" if unknown
	Weights    []*Weight   // in the order of the files
	Ignore     []string    // modules that the configuration lists as not quantized
	Unread     []string    // unsupported types of tensors in a GGUF file
	Decoded    []string    // types of tensors that are quantized in a GGUF file and read as F32
	Problems   []Problem   // violations of the convention; empty for a sound checkpoint
	Missing    []string    // what the configuration needs and no file has; each is a problem, too
	Notes      []string    // what may be on purpose: tensors that a layer lacks and most others have

	// Architecture is general.architecture of a GGUF file, "" for other files.
	Architecture string

	fileBytes int64     // of a GGUF file; 0 for others
	viewed    *GGUFView // nil for other files

	byName     map[string]*Weight
	family     *family.Model
	planned    *string // the dtype in the configuration of a planned checkpoint; nil for one that is read
	configured bool    // a quantization_config describes the quantized weights
	described  description
	cache      string          // Model.Cache
	faults     map[string]bool // tensors and modules of Problems, while they are looked for
	causes     map[string]int  // texts of problems of integers, and the weights that have them

	scalesOfValues map[*Weight]bool // scales of simulated quantization
}

// A Problem is a fault in the structure of a checkpoint.
type Problem struct {
	Tensor string // or module; empty if it concerns the whole checkpoint
	Text   string // the fault and its remedy
	Rule   string // the name of the rule that it breaks, as microscale lint lists them; "": none
	Mended bool   // a conversion repairs it

	// Misread: clients reject the checkpoint or read other values, although its weights are understood
	// here. Conversions, which write another description, repair it too.
	Misread bool
}

// Harmless reports whether the problem leaves all values known.
func (p Problem) Harmless() bool { return p.Mended || p.Misread }

func (p Problem) String() string {
	if p.Tensor == "" {
		return p.Text
	}
	return p.Tensor + ": " + p.Text
}

// Planned returns the checkpoint that a conversion of m will write. dtype is that of the model in
// config.json, "" if it names none. Of the weights only names, shapes, formats and global scales are
// known; a global scale that is not known yet is 0.
func (m *Model) Planned(c *Convention, scheme, dtype string, ignore []string, weights []*Weight) *Model {
	return &Model{Source: m.Source, family: m.Family(), Convention: c, Scheme: scheme, Weights: weights, Ignore: ignore,
		planned: &dtype, configured: true}
}

// TorchDtype returns the dtype of the model as the configuration names it, "" if it does not.
func (m *Model) TorchDtype() string {
	if m.planned != nil {
		return *m.planned
	}
	return m.Source.TorchDtype()
}

// CheckSidecar returns an error if the checkpoint lacks the file besides config.json from which clients read the configuration
// (Convention.Sidecar), or if that does not name a quantization. A planned one has it.
func (m *Model) CheckSidecar() error {
	if m.planned != nil {
		return nil
	}
	name := m.Convention.sidecar
	raw, ok := m.Source.Companion(name)
	if !ok {
		return fmt.Errorf("%s is missing", name)
	}
	var file struct {
		Quantization struct {
			Algo string `json:"quant_algo"`
		} `json:"quantization"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("%s is damaged (%w)", name, readable(err))
	}
	if file.Quantization.Algo == "" {
		return fmt.Errorf("%s has no quantization.quant_algo", name)
	}
	return nil
}

// Read is ReadContext without a context.
func Read(source *hf.Checkpoint) *Model {
	m, _ := ReadContext(context.Background(), source) // the context does not end
	return m
}

// ReadContext recognizes the convention of a checkpoint and finds its weights. It reads headers, and
// the data of global scales, and of shapes and groups of integers. Faults are reported as Problems; their tensors become unquantized
// weights. The only error is that of ctx, which ends it between two reads.
func ReadContext(ctx context.Context, source *hf.Checkpoint) (*Model, error) {
	tensors := source.Tensors()
	m := &Model{Source: source, byName: make(map[string]*Weight, len(tensors)), Weights: make([]*Weight, 0, len(tensors))}
	m.findView()
	known := m.recognize()
	m.cache = m.readCache()
	used := map[string]bool{} // tensors that are parts of a quantized weight, or the bytes of a decoded one
	if m.viewed != nil {
		for _, t := range m.viewed.Decoded {
			used[t.Blocks] = t.Blocks != ""
		}
	}
	for i := range tensors {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if used[tensors[i].Name] {
			continue
		}
		if w := m.assemble(ctx, &tensors[i], known); w != nil {
			m.add(w)
			for _, part := range w.parts {
				if part != nil {
					used[part.Name] = true
				}
			}
		}
	}
	for i := range tensors {
		if !used[tensors[i].Name] {
			m.add(m.unquantized(&tensors[i]))
		}
	}
	if len(used) > 0 { // else they are in that order already
		m.order()
	}
	m.splitJoined()
	m.check(known)
	m.view()
	return m, ctx.Err()
}

// Lookup returns the weight of a name.
func (m *Model) Lookup(name string) (*Weight, bool) {
	w, ok := m.byName[name]
	return w, ok
}

// Quantized returns the number of quantized weights.
func (m *Model) Quantized() int {
	n := 0
	for _, w := range m.Weights {
		if w.Quantized() {
			n++
		}
	}
	return n
}

func (m *Model) add(w *Weight) {
	m.Weights = append(m.Weights, w)
	m.byName[w.Name] = w
}

// order sorts the weights by their first tensor in the files.
func (m *Model) order() {
	place := map[string]int{}
	for i, t := range m.Source.Tensors() {
		place[t.Name] = i
	}
	slices.SortStableFunc(m.Weights, func(a, b *Weight) int {
		return place[a.parts[Codes].Name] - place[b.parts[Codes].Name]
	})
}

// known is the content of configuration and metadata, before tensors are read.
type known struct {
	description
	weights map[string]quantized // those that metadata describes
}

// recognize finds the convention and the description of the weights.
func (m *Model) recognize() known {
	k := known{weights: map[string]quantized{}}
	for _, shard := range m.Source.Shards() {
		described, err := parsePlainMetadata(shard.File.Metadata())
		if err != nil {
			m.fault("", "%s: %v", shard.Name, err)
			return k
		}
		maps.Copy(k.weights, described)
	}
	raw, ok := m.configuration()
	if !ok {
		if m.findUnconfigured(&k); m.Convention == nil && len(k.weights) > 0 {
			m.Convention = &plain
		}
		return k
	}
	var method struct {
		QuantMethod *string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &method); err != nil {
		m.unsupported("quantization_config is not a JSON object; fetch config.json again")
		return k
	}
	var methods []string
	for _, c := range readableConventions() {
		if c.recognize == nil {
			continue
		}
		if c.quantMethod != "" {
			methods = append(methods, c.quantMethod)
		}
		switch {
		case method.QuantMethod != nil && *method.QuantMethod != c.quantMethod:
			continue
		case method.QuantMethod == nil && !c.claims(raw):
			continue
		}
		m.describe(c, raw, &k)
		return k
	}
	for _, c := range conventions {
		if _, ok := m.Source.Companion(c.sidecar); ok && method.QuantMethod == nil {
			m.describe(c, raw, &k)
			return k
		}
	}
	m.unsupported("quantization_config names quant_method %q, which is not supported: use one of %s", deref(method.QuantMethod),
		strings.Join(methods, ", "))
	return k
}

// errCacheOnly says that a configuration describes no weight.
var errCacheOnly = errors.New("only the KV cache is quantized: weights are values")

// describe sets the convention and parses its configuration.
func (m *Model) describe(c *Convention, raw json.RawMessage, k *known) {
	d, err := c.recognize(raw)
	if errors.Is(err, errCacheOnly) {
		m.Notes = append(m.Notes, err.Error())
		return
	}
	if err != nil {
		m.unsupported("quantization_config: %v", err)
		return
	}
	m.Convention, m.Scheme, m.Ignore, m.configured, m.described, k.description = c, d.scheme, d.ignore, true, d, d
	if c == &torchAO {
		m.findTorchAO(k)
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// configuration returns the description of the quantization: from config.json, else from a
// sidecar, else, if there is no config.json, from the metadata of a file.
func (m *Model) configuration() (raw json.RawMessage, ok bool) {
	if raw, ok := m.Source.QuantizationConfig(); ok {
		return raw, true
	}
	for _, c := range conventions {
		if raw, ok := m.Source.Companion(c.sidecar); ok && c.sidecar != "" {
			return raw, true
		}
	}
	for _, shard := range m.Source.Shards() {
		if text, ok := shard.File.Metadata()[configurationKey]; ok && m.Source.Config == nil {
			return json.RawMessage(text), true
		}
	}
	return nil, false
}

// misread adds a problem of clients alone, by its rule.
func (m *Model) misread(rule, tensor, text string, args ...any) {
	m.fault(tensor, text, args...)
	p := &m.Problems[len(m.Problems)-1]
	p.Rule, p.Misread = rule, true
}

// unsupported adds the problem that the description of the weights cannot be read.
func (m *Model) unsupported(text string, args ...any) {
	m.fault("", text, args...)
	m.Problems[len(m.Problems)-1].Rule = "unsupported"
}

// fault adds a Problem.
func (m *Model) fault(tensor, text string, args ...any) {
	m.report(Problem{Tensor: tensor, Text: limits.Text(fmt.Sprintf(text, args...))})
}

// report adds a Problem.
func (m *Model) report(p Problem) {
	if m.faults == nil {
		m.faults = map[string]bool{}
	}
	m.Problems = append(m.Problems, p)
	m.faults[p.Tensor] = true
}
