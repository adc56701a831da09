package checkpoint

import (
	"regexp"
	"slices"
	"strings"
)

// IgnoreList returns the entries by which clients of the convention find the unquantized modules of
// a checkpoint. Both arguments are names of modules in the files. No entry matches a quantized one.
func (c *Convention) IgnoreList(unquantized, quantized []string) []string {
	if c == nil || !c.byPattern {
		return slices.Compact(slices.Sorted(slices.Values(unquantized)))
	}
	return modulePatterns(unquantized, quantized)
}

// modulePatterns returns regular expressions for modules that a client names differently than the files:
// transformers 5 has model.vision_tower for vision_tower, and lm_head for language_model.lm_head
// (conversion_mapping.py). So an entry is a run of words of the name, after any others:
//
//   - words that no quantized module contains, with everything below: re:(.*[.])?vision_tower([.].*)?$
//   - else the shortest end of the name that no quantized module has
//   - else the name itself
//
// A module of one word is listed by its name too, because programs look for lm_head.
func modulePatterns(unquantized, quantized []string) (entries []string) {
	count := map[string]int{} // of unquantized modules that contain a run
	for _, module := range unquantized {
		for _, run := range runs(module) {
			count[run]++
		}
	}
	taken, ends := map[string]bool{}, map[string]bool{} // all that entries would match of quantized modules
	for _, module := range quantized {
		for run := range dotted(module) {
			if count[run] > 0 {
				taken[run] = true
			}
			if module == run || strings.HasSuffix(module, "."+run) {
				ends[run] = true
			}
		}
	}
	for _, module := range unquantized {
		best := ""
		for _, run := range runs(module) {
			if !taken[run] && count[run] > count[best] {
				best = run
			}
		}
		if best != "" {
			entries = append(entries, anywhere+escaped(best)+below)
		} else {
			entries = append(entries, shortestEnd(module, ends))
		}
		if !strings.Contains(module, ".") {
			entries = append(entries, module)
		}
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// The beginning and the end of an entry.
const (
	anywhere = patternMark + `(.*[.])?`
	below    = `([.].*)?$`
)

// number matches the index of a module in a list.
var number = regexp.MustCompile(`^\d+$`)

// units returns the words of a module's name, each with the indexes that follow it: model, layers.3,
// mlp.
func units(module string) (units []string) {
	for w := range strings.SplitSeq(module, ".") {
		if n := len(units); n > 0 && number.MatchString(w) {
			units[n-1] += "." + w
		} else {
			units = append(units, w)
		}
	}
	return units
}

// word returns a unit without its indexes.
func word(unit string) string {
	w, _, _ := strings.Cut(unit, ".")
	return w
}

// runs returns the words of a module's name, alone and with their indexes, from the outermost. The
// word model is none of them: clients put it before the names of other modules.
func runs(module string) (runs []string) {
	for _, unit := range units(module) {
		if w := word(unit); w != unit {
			runs = append(runs, w, unit)
		} else if w != "model" {
			runs = append(runs, w)
		}
	}
	return runs
}

// shortestEnd returns the entry for the shortest end of a module's name that is not in ends.
func shortestEnd(module string, ends map[string]bool) string {
	parts := units(module)
	for i := len(parts) - 1; i >= 0; i-- {
		if end := strings.Join(parts[i:], "."); !ends[end] {
			return anywhere + escaped(end) + "$"
		}
	}
	return module
}

// escaped returns a regular expression that matches s.
func escaped(s string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(s), `\.`, `[.]`)
}

// tiedHeads are the output heads that transformers ties to the embedding under another name than
// lm_head, unless a module beside them is stored (_tied_weights_keys of its classes).
var tiedHeads = []struct {
	head       string
	modelTypes []string
}{
	{"proj_out", []string{"whisper", "moonshine", "moonshine_streaming", "canary", "cohere_asr"}},
	{"cls.predictions.decoder", []string{"bert", "big_bird", "deberta", "deberta-v2", "ernie", "fnet", "layoutlm", "lxmert", "megatron-bert",
		"mobilebert",
		"mra", "nomic_bert", "nystromformer", "roc_bert", "roformer", "squeezebert", "tapas", "visual_bert", "yoso"}},
	{"predictions.decoder", []string{"albert"}},
	{"decoder", []string{"modernbert", "modernbert-decoder"}},
	{"generator_lm_head", []string{"electra", "convbert"}},
	{"output_projection", []string{"biogpt", "trocr"}},
	{"decoder.output_projection", []string{"fsmt"}},
	{"vocab_projector", []string{"distilbert"}},
	{"pred_layer.proj", []string{"xlm", "flaubert"}},
	{"lm_loss", []string{"xlnet"}},
	{"embed_out", []string{"gpt_neox_japanese"}},
	{"head", []string{"rwkv"}},
	{"output", []string{"git"}},
	{"ctc_head", []string{"granite_speech5"}},
}

// UnstoredHeads returns the output heads that the files do not hold and that clients build, tied to the
// embedding: modules that are on the ignore list although there is no weight of them. A client that
// does not find them there builds them quantized, and computes with random codes. Without a
// config.json there are none.
func (m *Model) UnstoredHeads() (heads []string) {
	if m.Source.Config == nil {
		return nil
	}
	whole, text := m.Source.ModelType()
	head := "lm_head"
	for _, row := range tiedHeads {
		if slices.Contains(row.modelTypes, whole) || slices.Contains(row.modelTypes, text) {
			head = row.head
		}
	}
	for _, w := range m.Weights {
		if module, ok := strings.CutSuffix(w.Name, weightSuffix); ok && (module == head || strings.HasSuffix(module, "."+head)) {
			return nil
		}
	}
	return []string{head}
}

// Expected returns a function that reports whether a client that builds a linear module of this name
// expects it quantized, because the configuration selects it and does not list it as ignored. It
// reports false for all modules if the configuration has no such list.
func (m *Model) Expected() func(module string) bool {
	if m.Convention == nil || !m.Convention.hasIgnore || !m.configured || m.described.noIgnore {
		return func(string) bool { return false }
	}
	ignored, selected := m.Convention.Ignored(m.Ignore), func(string) bool { return true }
	if m.described.targets != nil {
		selected = m.described.selector()
	}
	return func(module string) bool { return selected(module) && !ignored(module) }
}
