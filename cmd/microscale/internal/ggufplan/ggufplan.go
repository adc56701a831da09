// Package ggufplan makes the plans of llama-quantize's mixtures, such as Q4_K_M, for a GGUF file. The rules are those of
// llama_tensor_get_type in src/llama-quant.cpp of llama.cpp; a test in interop compares types and blocks with its library, with and without
// an importance matrix. Architecture falcon, which has other rules, is an error.
package ggufplan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
)

// A row is a mixture: the format of most weights, and those of others; "" where they have none of their own.
type row struct {
	name, base string
	head       string                      // of the output of the model; "": base
	fileType   uint32                      // the number of the mixture in general.file_type (enum llama_ftype)
	value      func(m model, i int) string // of the values of attention i of the model
	down       func(m model, i int) string // of ffn_down of layer i
	output     string                      // of the output of attention
	eight      bool                        // the output of attention is in Q5_K in models of 8 experts
	experts    string                      // of tensors of several matrices; "": no other than those of one
}

// of returns a format for every layer.
func of(format string) func(model, int) string { return func(model, int) string { return format } }

// within returns Q5_K for the first layers, n of them or a share of all.
func within(n, share int) func(model, int) string {
	return func(m model, i int) string {
		if i < n || share > 0 && i < m.layers/share {
			return "q5_k"
		}
		return ""
	}
}

// more returns Q6_K for the first and the last eighth of the layers, and each third between them.
func more(m model, i int) string {
	if n := m.layers; i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 {
		return "q6_k"
	}
	return ""
}

// guarded returns a format for the first eighth of the layers of a model with an importance matrix.
func guarded(format string) func(model, int) string {
	return func(m model, i int) string {
		if m.importance && i < m.layers/8 {
			return format
		}
		return ""
	}
}

// grouped returns Q4_K for models with at least four heads of queries for one of keys, and Q3_K for others.
func grouped(m model, _ int) string {
	if m.grouped >= 4 {
		return "q4_k"
	}
	return "q3_k"
}

// first returns the first format that is not "".
func first(all ...func(model, int) string) func(model, int) string {
	return func(m model, i int) string {
		for _, f := range all {
			if format := f(m, i); format != "" {
				return format
			}
		}
		return ""
	}
}

var none = of("")

// rows are the mixtures.
var rows = []row{
	{name: "q2_k", base: "q2_k", fileType: 10, head: "q6_k", value: grouped, down: of("q3_k"), output: "q3_k", eight: true},
	{name: "q3_k_s", base: "q3_k", fileType: 11, head: "q6_k", value: none, down: none, eight: true},
	{name: "q3_k_m", base: "q3_k", fileType: 12, head: "q6_k", value: first(within(2, 0), of("q4_k")), down: first(within(0, 16), of("q4_k")),
		output: "q4_k", eight: true},
	{name: "q3_k_l", base: "q3_k", fileType: 13, head: "q6_k", value: of("q5_k"), down: of("q5_k"), output: "q5_k"},
	{name: "q4_0", base: "q4_0", fileType: 2, head: "q6_k", value: none, down: guarded("q4_1")},
	{name: "q4_1", base: "q4_1", fileType: 3, head: "q6_k", value: none, down: none},
	{name: "q4_k_s", base: "q4_k", fileType: 14, head: "q6_k", value: within(4, 0), down: within(0, 8), eight: true},
	{name: "q4_k_m", base: "q4_k", fileType: 15, head: "q6_k", value: more, down: more, eight: true},
	{name: "q5_0", base: "q5_0", fileType: 8, head: "q6_k", value: none, down: guarded("q5_1")},
	{name: "q5_1", base: "q5_1", fileType: 9, head: "q6_k", value: none, down: none},
	{name: "q5_k_s", base: "q5_k", fileType: 16, head: "q6_k", value: none, down: none},
	{name: "q5_k_m", base: "q5_k", fileType: 17, head: "q6_k", value: more, down: more},
	{name: "q6_k", base: "q6_k", fileType: 18, head: "q6_k", value: none, down: none},
	{name: "mxfp4_moe", base: "q8_0", fileType: 38, value: none, down: none, experts: "mxfp4"},
}

// A model is what the rules read of a file.
type model struct {
	layers, grouped, experts int
	large                    bool // a model of 70 billion parameters, as llama.cpp names it
	tied                     bool
	importance               bool     // there is an importance matrix
	names                    []string // of all tensors
	values                   []string // the names of the tensors of values, by layer
	downs                    []string // those of ffn_down
	stacks                   []string // those of several matrices
}

// Names returns the names of the mixtures.
func Names() (names []string) {
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// Known reports whether there is a mixture of that name.
func Known(name string) bool { return index(name) >= 0 }

// index returns the number of the row of a mixture, in any case; -1 if there is none.
func index(name string) int {
	return slices.IndexFunc(rows, func(r row) bool { return strings.EqualFold(r.name, name) })
}

// Read reads a plan file, or makes the plan of the mixture of that name for a GGUF file, if there is no such file. open opens the
// checkpoint to quantize, which Read does not close. importance: weights are quantized with an importance matrix.
func Read(path string, open func() (*hf.Checkpoint, error), importance bool) (*convert.PlanFile, error) {
	i := index(path)
	switch _, err := os.Lstat(path); {
	case !errors.Is(err, fs.ErrNotExist):
		return convert.ReadPlanFile(path)
	case i < 0 && filepath.Ext(path) == "" && filepath.Base(path) == path:
		return nil, fmt.Errorf("%s is neither a plan file nor a mixture of llama-quantize: these are %s", path, strings.Join(Names(), ", "))
	case i < 0:
		return convert.ReadPlanFile(path)
	}
	source, err := open()
	if err != nil {
		return nil, err
	}
	if source.GGUF == nil {
		return nil, fmt.Errorf("the mixture %s is of GGUF files: quantize %s to a GGUF file in bf16 first, and then that", path, source.Path)
	}
	m, err := describe(source.GGUF)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	m.importance = importance
	return rows[i].plan(m), nil
}

var (
	valuesName = regexp.MustCompile(`^blk\.(\d+)\.attn_(v|qkv|kv_b)\.weight$`)
	downName   = regexp.MustCompile(`^blk\.(\d+)\.ffn_down(_exps|_shexp)?\.weight$`)
)

// describe reads a model.
func describe(f *gguf.File) (m model, err error) {
	architecture, _ := f.Value("general.architecture").(string)
	if architecture == "" || architecture == "falcon" {
		return m, fmt.Errorf("llama-quantize's mixtures for architecture %q are not known: give rules", architecture)
	}
	key := func(name string) int { return f.Count(architecture + "." + name) }
	m.layers, m.experts, m.tied = key("block_count"), key("expert_count"), true
	m.grouped = 1
	if kv := key("attention.head_count_kv"); kv > 0 {
		m.grouped = key("attention.head_count") / kv
	}
	m.large = m.layers == 80 && (architecture == "llama" || architecture == "qwen2")
	for _, t := range f.Tensors {
		m.names = append(m.names, t.Name)
		m.tied = m.tied && t.Name != "output.weight"
		if valuesName.MatchString(t.Name) {
			m.values = append(m.values, t.Name)
		}
		if len(t.Shape) == 3 && t.Shape[0] > 1 {
			m.stacks = append(m.stacks, t.Name)
		}
		if downName.MatchString(t.Name) {
			m.downs = append(m.downs, t.Name)
		}
	}
	for _, names := range [][]string{m.values, m.downs} {
		slices.SortStableFunc(names, func(a, b string) int { return layerOf(a) - layerOf(b) })
	}
	return m, nil
}

// layerOf returns the number of the layer in a name.
func layerOf(name string) int {
	n, err := strconv.Atoi(strings.Split(name, ".")[1])
	if err != nil {
		return 0 // more than the digits of a number: no file has so many layers
	}
	return n
}

// plan returns the plan of the mixture for a model. Each rule matches a tensor of the model.
func (r row) plan(m model) *convert.PlanFile {
	p := &convert.PlanFile{Format: r.base, FileType: r.fileType, Include: []string{`^(token_embd|output|per_layer_token_embd)\.weight$`}}
	rule := func(match, format string) {
		if format != "" && format != r.base && slices.ContainsFunc(m.names, regexp.MustCompile(match).MatchString) {
			p.Rule = append(p.Rule, convert.RuleLine{Match: match, Format: format})
		}
	}
	head := "output"
	if m.tied {
		head = "token_embd"
	}
	rule(`^`+head+`\.weight$`, r.head)
	for _, name := range m.stacks {
		rule("^"+regexp.QuoteMeta(name)+"$", r.experts)
	}
	for i, name := range m.values {
		format := r.value(model{layers: len(m.values), grouped: m.grouped}, i)
		if m.large && (format == "q4_k" || format == "" && (r.base == "q3_k" || r.base == "q4_k")) {
			format = "q5_k"
		}
		if m.experts == 8 {
			format = "q8_0"
		}
		rule("^"+regexp.QuoteMeta(name)+"$", format)
	}
	for i, name := range m.downs {
		if m.experts > 1 {
			i = layerOf(name)
		}
		rule("^"+regexp.QuoteMeta(name)+"$", r.down(m, i))
	}
	if m.experts == 8 {
		rule(`\.attn_k\.weight$`, "q8_0")
		if r.eight {
			rule(`\.attn_output\.weight$`, "q5_k")
		}
	} else {
		rule(`\.attn_output\.weight$`, r.output)
	}
	return p
}
