// Package verify compares a converted checkpoint with its source: is every weight there,
// is each stored as its convention demands, and do the values match the source?
//
//	quantized weights         each scale and each element is within the bound of its format (quant.Bound),
//	                          or the source is quantized, too, and each element decodes to the same value
//	weights only decoded      each element is within the bound of its block: types of other tools without a block format;
//	                          where the type has no bound, the SQNR of the weight is at least 3 dB
//	weights of another dtype  each element is the source's, rounded to nearest even
//	all others                bit-identical to the source
//
// The bound of a format covers every supported scale rule, search and rounding. It detects damage to one
// block. That of a type that is only decoded is wider. It does not detect an element that moved to the other of its two neighbors, damage
// to blocks that every rule rounds to zeros, or low precision: see [Options.MinSQNR].
package verify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
)

// Check is how a weight is compared with the source.
type Check uint8

const (
	Bounded     Check = iota // quantized: elements and scales are within the bound of the format
	Equal                    // quantized, as the source is, and decoded to the same values, as after a cast that loses nothing
	Calibrated               // quantized by a method that moves errors between elements: only scales are within the bound
	DecodedOnly              // in a type that is only decoded, of GGUF files or other tools: elements are within the bound of their block
	Unbounded                // the same, where no bound of an element is known, or a norm that was trained: the weight has a least SQNR
	Rounded                  // of another dtype: elements are the source's values rounded to it
	Identical                // elements are bit-identical to the source's
)

// String returns "bounded", "equal", "calibrated", "decoded only", "unbounded", "rounded" or "identical".
func (c Check) String() string {
	names := [...]string{"bounded", "equal", "calibrated", "decoded only", "unbounded", "rounded", "identical"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Check(%d)", uint8(c))
}

// A Tensor is a weight and its error against the source.
type Tensor struct {
	Name       string
	Format     string // block format, or dtype in lower case
	Rows, Cols int
	Result     measure.Result
	Nearest    measure.Result // of the same format without a search of scales; zero Elements if not measured
}

// Gain returns the improvement in dB over quantization without a search of scales. ok is
// false if that was not measured or is not finite.
func (t Tensor) Gain() (db float64, ok bool) {
	db = t.Result.SQNR - t.Nearest.SQNR
	return db, t.Nearest.Elements > 0 && !math.IsNaN(db) && !math.IsInf(db, 0)
}

// A Problem is a fault of a checkpoint, in its structure or its values.
type Problem struct {
	Tensor string // tensor or module; "" if it concerns the whole checkpoint
	Text   string // the fault and its remedy
}

// String returns "TENSOR: TEXT", or the text alone.
func (p Problem) String() string { return checkpoint.Problem{Tensor: p.Tensor, Text: p.Text}.String() }

// A Progress reports how far a long operation is.
type Progress struct {
	Stage string // the current stage, such as "comparing"
	Done  int64  // bytes of the operation that are done, of all stages
	Total int64  // bytes of the operation
}

// A Report is the comparison of two checkpoints.
type Report struct {
	Tensors     []Tensor  // the weights of both, in the order of the source
	Checks      []Check   // how each tensor was compared
	Blocks      []Blocks  // of the quantized tensors, in the same order
	Problems    []Problem // faults of dst
	Notes       []string  // what may be a fault of either (checkpoint.Model.Notes)
	NotCompared []string  // the parts of dst that were not compared, and why
}

// OK reports whether the comparison found no problem. It does not cover NotCompared.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Checked returns the number of weights that were compared as c.
func (r *Report) Checked(c Check) (n int) {
	for _, check := range r.Checks {
		if check == c {
			n++
		}
	}
	return n
}

// Options of a comparison. The zero value is ready for use.
type Options struct {
	Threads  int            // goroutines; 0: one per processor
	Progress func(Progress) // called by several goroutines, one call at a time; may be nil
	Clients  []string       // clients by name (vllm, sglang, …): what they would reject is a problem
	// Check returns further problems of the checkpoint that is compared with its source; nil: none.
	Check   func(context.Context, *checkpoint.Model) ([]checkpoint.Problem, error)
	MinSQNR float64 // dB: a quantized weight with a lower SQNR is a problem; 0: no limit but that of Unbounded

	// Nearest returns the quantizer of a block format. If it is set, the error of quantizing
	// the source by it, without a search of scales, is measured too (Tensor.Nearest).
	Nearest func(quant.Format) (quant.Quantizer, error)
}

// Compare reads both checkpoints completely and compares every weight of dst with src. It
// also compares dst with the checksums in its files. Faults of dst are in the report. An
// error means that a checkpoint could not be read, or a client is unknown.
func Compare(ctx context.Context, src, dst *hf.Checkpoint, o Options) (*Report, error) {
	var loaders []client.Client
	for _, name := range o.Clients {
		c, err := client.Lookup(name)
		if err != nil {
			return nil, err
		}
		loaders = append(loaders, c)
	}
	source, err := checkpoint.ReadContext(ctx, src)
	if err != nil {
		return nil, err
	}
	result, err := checkpoint.ReadContext(ctx, dst)
	if err != nil {
		return nil, err
	}
	return compareModels(ctx, source, result, o, loaders)
}

// compareModels is Compare for checkpoints whose conventions are read.
func compareModels(ctx context.Context, src, dst *checkpoint.Model, o Options, loaders []client.Client) (*Report, error) {
	r := &Report{}
	for _, text := range src.Missing {
		r.Problems = append(r.Problems, Problem{Text: "the source is incomplete: " + text})
	}
	r.report(dst.Problems)
	structure := slices.Clone(r.Problems)
	for _, m := range []*checkpoint.Model{src, dst} {
		head, err := m.HeadNote(ctx)
		if err != nil {
			return nil, err
		}
		for _, text := range append(slices.Clone(m.Notes), head) {
			if text != "" && !slices.Contains(r.Notes, text) {
				r.Notes = append(r.Notes, text)
			}
		}
	}
	method, err := calibration.Lookup(dst.Method())
	moved := dst.Method() != "" && (err != nil || method.MovesErrors()) // by an unknown method, perhaps
	var pairs []pair
	known := map[string]bool{}
	single, caches := singles(src, dst, known), cacheScales(dst)
	for _, want := range counterparts(src, dst) {
		known[want.Name] = true
		got, ok := dst.Lookup(want.Name)
		if !ok {
			got, ok = single[want.Name]
		}
		owner, ofCache := checkpoint.CacheOwner(want.Name)
		if got, ok = cmp.Or(got, caches[owner]), ok || caches[owner] != nil; ok && ofCache {
			known[got.Name] = true
		}
		switch {
		case !ok && (src.ScalesOfValues(want) || ofCache && dst.Cache() == ""): // part of the quantization
		case !ok && !mentioned(structure, want.Name):
			r.fault(want.Name, "it is missing")
		case ok && !slices.Equal(want.Shape, got.Shape) && !(ofCache && oneValue(want) && oneValue(got)):
			r.fault(want.Name, "its shape is %v, the source's %v", got.Shape, want.Shape)
		case ok:
			trained := calibration.Trained(dst.Method(), got.Name, got.Shape) && want.Dense() && got.Dense() && !got.Quantized()
			pairs = append(pairs, pair{want, got, moved, trained})
		}
	}
	for _, got := range dst.Weights {
		if !known[got.Name] && !isCacheScale(got.Name) && !mentioned(structure, got.Name) {
			r.fault(got.Name, "the source has no such tensor")
		}
	}
	p := newProgress(pairs, dst, o.Progress)
	if err := r.compare(ctx, pairs, o, p); err != nil {
		return nil, err
	}
	if err := r.checkRecord(ctx, dst, p); err != nil {
		return nil, err
	}
	for _, c := range loaders {
		r.report(c.Rejects(dst))
	}
	if o.Check != nil {
		problems, err := o.Check(ctx, dst)
		if err != nil {
			return nil, err
		}
		r.report(problems)
	}
	r.NotCompared = append(r.NotCompared, notCompared(dst, known)...)
	return r, nil
}

// notCompared describes the parts of dst without a counterpart in the source, whose weights
// have the known names.
func notCompared(dst *checkpoint.Model, known map[string]bool) (parts []string) {
	activations, caches := 0, 0
	for _, w := range dst.Weights {
		if _, ok := w.Part(checkpoint.Input); ok {
			activations++
		}
		if isCacheScale(w.Name) && !known[w.Name] {
			caches++
		}
	}
	if activations > 0 {
		parts = append(parts, fmt.Sprintf("scales of activations (%d): they depend on inputs", activations))
	}
	if caches > 0 {
		parts = append(parts, fmt.Sprintf("scales of the KV cache (%d): they depend on inputs", caches))
	}
	switch others := len(dst.Source.Others()); {
	case dst.Architecture != "":
		parts = append(parts, "metadata and tokenizer: only weights are compared")
	case !dst.Source.Single:
		parts = append(parts, fmt.Sprintf("config.json beyond its quantization, and other files (%d): only weights are compared", others))
	}
	return parts
}

// counterparts returns the weights of the source as dst has them: fused experts are split
// if dst has separate experts.
func counterparts(src, dst *checkpoint.Model) []*checkpoint.Weight {
	var all []*checkpoint.Weight
	for _, w := range src.Weights {
		split := w.Split()
		if _, whole := dst.Lookup(w.Name); whole || split == nil {
			split = []*checkpoint.Weight{w}
		} else if _, ok := dst.Lookup(split[0].Name); !ok {
			split = []*checkpoint.Weight{w}
		}
		all = append(all, split...)
	}
	return all
}

// singles returns the experts, by name, of the weights of dst that hold those of a layer where the source has single
// ones. It adds the names of these weights to known.
func singles(src, dst *checkpoint.Model, known map[string]bool) map[string]*checkpoint.Weight {
	single := map[string]*checkpoint.Weight{}
	for _, w := range dst.Weights {
		if _, whole := src.Lookup(w.Name); whole {
			continue
		}
		split := w.Split()
		if len(split) == 0 {
			continue
		}
		if _, ok := src.Lookup(split[0].Name); ok {
			known[w.Name] = true
			for _, expert := range split {
				single[expert.Name] = expert
			}
		}
	}
	return single
}

// cacheScales returns the scales of the KV cache by the projections that they belong to: conventions have other names for them.
func cacheScales(m *checkpoint.Model) map[string]*checkpoint.Weight {
	scales := map[string]*checkpoint.Weight{}
	for _, w := range m.Weights {
		if owner, ok := checkpoint.CacheOwner(w.Name); ok {
			scales[owner] = w
		}
	}
	return scales
}

// oneValue reports whether a weight is one number, of any number of dimensions.
func oneValue(w *checkpoint.Weight) bool {
	rows, cols := w.Matrix()
	return rows*cols == 1
}

// isCacheScale reports whether a tensor is a scale of the KV cache.
func isCacheScale(name string) bool {
	_, ok := checkpoint.CacheOwner(name)
	return ok
}

// mentioned reports whether one of the problems concerns the tensor.
func mentioned(problems []Problem, tensor string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Tensor == tensor })
}

func (r *Report) fault(name, text string, args ...any) {
	r.Problems = append(r.Problems, Problem{Tensor: name, Text: fmt.Sprintf(text, args...)})
}

// report adds problems of the structure.
func (r *Report) report(problems []checkpoint.Problem) {
	for _, p := range problems {
		r.Problems = append(r.Problems, Problem{p.Tensor, p.Text})
	}
}
