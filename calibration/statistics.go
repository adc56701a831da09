package calibration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// An Input is what is known of the input of a linear layer, or of several that share it. That of an expert leans on
// those of all experts of its layer, by as much as it has few tokens.
type Input struct {
	Modules []string  // that read it, by their names in the checkpoint
	Tokens  int64     // rows of X; 0: no token reached the expert
	Amax    float64   // the largest magnitude
	Square  []float32 // mean square of each column: the diagonal of H
	Mean    []float32 // of each column; nil of an importance matrix

	file   *safetensors.File
	name   string            // of its tensors
	sums   map[string]uint64 // checksums of tensors; nil of a file of an older program
	header headerInput
	prior  *Input // of all experts; nil: none
}

// Width returns the number of columns.
func (in *Input) Width() int { return len(in.Square) }

// IsExpert reports whether the input is that of an expert, which not all tokens reach.
func (in *Input) IsExpert() bool { return in.prior != nil }

// HasHessian reports whether the file has H, or its factor.
func (in *Input) HasHessian() bool {
	if in.file == nil { // of an importance matrix
		return false
	}
	if in.Tokens == 0 && !in.Solved() {
		in = in.prior
	}
	_, ok := in.file.Lookup(in.name + hessian)
	return ok || in.header.Diagonal || in.Solved()
}

// Solved reports whether the file has the factor of H, which is read then and not made.
func (in *Input) Solved() bool {
	if in.file == nil {
		return false
	}
	_, ok := in.file.Lookup(in.name + factor)
	return ok
}

// Hessian reads the upper triangle of H, row after row.
func (in *Input) Hessian() ([]float32, error) {
	if !in.HasHessian() {
		return nil, fmt.Errorf("%s: the input of %s has no products of its columns: collect the statistics with --hessian", in.file.Name(),
			in.Modules[0])
	}
	h, err := in.products()
	if err != nil || in.prior == nil {
		return h, err
	}
	of, err := in.prior.products()
	if err != nil {
		return nil, err
	}
	return in.lean(h, of), nil
}

// HasDrift reports whether the file has a drift: Factor aims at the outputs of the original model.
func (in *Input) HasDrift() bool {
	if in.file == nil {
		return false
	}
	_, ok := in.file.Lookup(in.name + drift)
	return ok
}

// Factor returns the factor of H. If the statistics follow quantized layers, or are of quantized inputs, it aims at the outputs of the
// original model.
func (in *Input) Factor(threads int) (*Factor, error) {
	if in.Solved() {
		return in.readFactor(threads)
	}
	h, err := in.Hessian()
	if err != nil {
		return nil, err
	}
	f, err := NewFactor(h, in.Width())
	if err != nil || !in.HasDrift() {
		return f, err
	}
	d := Drift{Tokens: in.Tokens}
	if d.Products, err = in.floats(drift); err == nil {
		d.Square, err = in.floats(driftSquare)
	}
	if err != nil {
		return nil, err
	}
	return f, f.Aim(d, threads)
}

// products reads what the file has of H: nil of an expert without tokens.
func (in *Input) products() ([]float32, error) {
	switch {
	case in.Tokens == 0:
		return nil, nil
	case in.header.Diagonal:
		h, n, at := make([]float32, triangle(len(in.Square))), len(in.Square), 0
		for i, v := range in.Square {
			h[at] = v
			at += n - i
		}
		return h, nil
	}
	return in.floats(hessian)
}

// triangle returns the number of elements of the upper triangle of an n×n matrix.
func triangle(n int) int { return n * (n + 1) / 2 }

// priorShare is the number of tokens, as a share of the columns, that the statistics of all experts count in those of one.
const priorShare = 0.25

// lean returns (n·own + m·of)/(n+m) for n tokens, m = priorShare·columns. own is nil without tokens.
func (in *Input) lean(own, of []float32) []float32 {
	n, m := float64(in.Tokens), priorShare*float64(len(in.prior.Square))
	out := make([]float32, len(of))
	for i, v := range of {
		sum := m * float64(v)
		if n > 0 {
			sum += float64(n * float64(own[i]))
		}
		out[i] = float32(sum / (n + m))
	}
	return out
}

// Statistics are those of all inputs of a model over a text.
type Statistics struct {
	Inputs []*Input // in the order of the layers

	all      []*Input // also those of all experts of a layer
	file     *safetensors.File
	modules  map[string]*Input
	key      string
	identity string

	importance importance  // of a file of llama.cpp, in place of all above but identity; nil for others
	record     []gguf.Pair // of it
}

// Of returns the input of a module. ok is false if the model has no such module.
func (s *Statistics) Of(module string) (in *Input, ok bool) {
	in, ok = s.modules[module]
	return in, ok
}

// Amaxes returns the amax of the input of each module.
func (s *Statistics) Amaxes() map[string]float64 {
	amaxes := map[string]float64{}
	for module, in := range s.modules {
		amaxes[module] = in.Amax
	}
	return amaxes
}

// Close closes the file.
func (s *Statistics) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// Identity is a digest of all statistics but H, whose diagonal it has.
func (s *Statistics) Identity() string { return s.identity }

// A file of statistics is a safetensors file. Input k has the F32 tensors k.square, k.mean, k.amax of each column and perhaps
// k.hessian, k.drift and k.drift_square, or their factor; the rest is JSON in the metadata. Files of older programs have no k.amax,
// and no checksum.Record of the tensors, whose Plan is a digest of the JSON, or one without the digest of their names.
const (
	metadataKey = "microscale.calibration"
	version     = 1
	square      = ".square"
	mean        = ".mean"
	peak        = ".amax"
	hessian     = ".hessian"
	drift       = ".drift"
	driftSquare = ".drift_square"
)

// A header is the JSON of a file.
type header struct {
	Version int           `json:"version"`
	Key     string        `json:"key,omitempty"`   // Collector.Key
	Names   string        `json:"names,omitempty"` // a digest of the names of the tensors; "" of a file of an older program
	Inputs  []headerInput `json:"inputs"`
}

// A headerInput without modules is that of all experts of a layer.
type headerInput struct {
	Modules  []string `json:"modules,omitempty"`
	Tokens   int64    `json:"tokens"`
	Amax     float64  `json:"amax"`
	Prior    *int     `json:"prior,omitempty"`    // of an expert: the index of the input of all experts
	Diagonal bool     `json:"diagonal,omitempty"` // H is its diagonal, and not stored
}

// IsFile reports whether a file is one of statistics, by the end of its name, or an importance matrix of llama.cpp, by its content.
func IsFile(path string) bool {
	return strings.EqualFold(filepath.Ext(path), ".safetensors") || ofImportance(path)
}

// KeyOf returns the key of a file of whole statistics, Collector.Key; "" without one.
func KeyOf(path string) string {
	s, err := Read(path)
	if err != nil || s.Close() != nil {
		return ""
	}
	return s.key
}

// Read opens a file of statistics, or an importance matrix of llama.cpp. The caller closes them.
func Read(path string) (*Statistics, error) {
	if ofImportance(path) {
		return readImportance(path)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Statistics{file: f, modules: map[string]*Input{}}
	if err := s.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return s, nil
}

func (s *Statistics) read() error {
	text, ok := s.file.Metadata()[metadataKey]
	if !ok {
		return errors.New("no statistics of a calibration: make them with calibrate --out FILE.safetensors")
	}
	var h header
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return fmt.Errorf("metadata %s: %s", metadataKey, limits.Text(err.Error()))
	}
	if h.Version != version {
		return fmt.Errorf("statistics of version %d: this program reads version %d", h.Version, version)
	}
	sums, err := sumsOf(s.file, text, h.Names)
	if err != nil {
		return err
	}
	s.key, h.Key, h.Names = h.Key, "", ""
	digest := sha256.New()
	if err := json.NewEncoder(digest).Encode(h); err != nil {
		return err
	}
	for k, one := range h.Inputs {
		in := &Input{Modules: one.Modules, Tokens: one.Tokens, Amax: one.Amax, file: s.file, name: strconv.Itoa(k), header: one, sums: sums}
		if one.Prior != nil {
			if *one.Prior < 0 || *one.Prior >= k || s.all[*one.Prior].prior != nil {
				return fmt.Errorf("input %d: got the prior %d, want one of the inputs before it", k, *one.Prior)
			}
			in.prior = s.all[*one.Prior]
		}
		if err := in.read(); err != nil {
			return fmt.Errorf("input %d: %w", k, err)
		}
		for _, module := range in.Modules {
			if s.modules[module] != nil {
				return fmt.Errorf("input %d: the module %s has another input", k, limits.Text(module))
			}
			s.modules[module] = in
		}
		if s.all = append(s.all, in); len(in.Modules) > 0 {
			s.Inputs = append(s.Inputs, in)
		}
		digest.Write(floatBytes(in.Square))
		digest.Write(floatBytes(in.Mean))
	}
	s.identity = hex.EncodeToString(digest.Sum(nil)[:16])
	return nil
}

// headerSum returns a digest of the JSON of a header, as a checksum.Record has it.
func headerSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:checksum.PlanDigits/2])
}

// namesSum returns a digest of the names of tensors, as a header has it.
func namesSum(names []string) string {
	return headerSum(strings.Join(slices.Sorted(slices.Values(names)), " "))
}

// collectAgain is what to do about a damaged file: those who look for one of the same key would use it again.
const collectAgain = "remove the file (that of a layer with its directory), and collect the statistics again"

// sumsOf returns the checksums of the tensors of a file by name; nil of a file of an older program, without a record of them. text is the
// JSON of its header, names that of the names of the tensors.
func sumsOf(f *safetensors.File, text, names string) (map[string]uint64, error) {
	record, ok, err := checksum.RecordOf(f)
	if err != nil {
		return nil, err
	}
	sums, stored := map[string]uint64{}, []string(nil)
	for i, t := range f.Tensors() {
		if stored = append(stored, t.Name); ok {
			sums[t.Name] = record.Tensors[i]
		}
	}
	if ok && record.Plan != headerSum(text) || names != "" && (!ok || names != namesSum(stored)) {
		return nil, fmt.Errorf("the header is damaged: its checksum differs: %s", collectAgain)
	}
	return sums, nil
}

// floats reads a tensor of the input, whose name ends in end.
func (in *Input) floats(end string) ([]float32, error) {
	v, err := in.file.Floats(in.name + end)
	if want, ok := in.sums[in.name+end]; err == nil && ok && checksum.Of(floatBytes(v)) != want {
		err = fmt.Errorf("%s: the tensor %s%s is damaged: its checksum differs: %s", in.file.Name(), in.name, end, collectAgain)
	}
	return v, err
}

// read reads the vectors of an input, and checks that it is whole.
func (in *Input) read() (err error) {
	if in.Tokens < 0 || in.Tokens == 0 && in.prior == nil || len(in.Modules) == 0 && in.prior != nil ||
		!(in.Amax > 0 && in.Amax <= math.MaxFloat32) {
		return fmt.Errorf("got %d modules, %d tokens, amax %g, want positive ones", len(in.Modules), in.Tokens, in.Amax)
	}
	if in.Tokens > 0 {
		if err := in.readVectors(); err != nil {
			return err
		}
	}
	if in.prior == nil {
		return nil
	}
	if in.Tokens > 0 && len(in.Square) != len(in.prior.Square) {
		return fmt.Errorf("got %d columns, want %d, as all experts have", len(in.Square), len(in.prior.Square))
	}
	in.Square, in.Mean = in.lean(in.Square, in.prior.Square), in.lean(in.Mean, in.prior.Mean)
	return nil
}

// readVectors reads what the file has of an input.
func (in *Input) readVectors() (err error) {
	if in.Square, err = in.floats(square); err != nil {
		return err
	}
	if in.Mean, err = in.floats(mean); err != nil {
		return err
	}
	n := len(in.Square)
	if len(in.Mean) != n || n == 0 {
		return fmt.Errorf("got %d squares and %d means, want as many of each", n, len(in.Mean))
	}
	for i, v := range in.Square {
		if m := in.Mean[i]; !(v >= 0 && v <= math.MaxFloat32) || m-m != 0 {
			return fmt.Errorf("column %d has the mean square %g and the mean %g, want finite ones", i, v, m)
		}
	}
	if h, ok := in.file.Lookup(in.name + hessian); ok && (h.Dtype != safetensors.F32 || h.Elements() != int64(triangle(n))) {
		return fmt.Errorf("got %d %s products, want %d in F32", h.Elements(), h.Dtype, triangle(n))
	}
	if d, ok := in.file.Lookup(in.name + drift); ok && (d.Dtype != safetensors.F32 || d.Elements() != int64(n)*int64(n)) {
		return fmt.Errorf("got %d %s products of the drift, want %d in F32", d.Elements(), d.Dtype, n*n)
	}
	return nil
}
