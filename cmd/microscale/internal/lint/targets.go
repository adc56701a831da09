package lint

import (
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
)

// targetRules are about the groups of compressed-tensors and the modules that they select.
var targetRules = []Rule{
	{
		ID: "L16", Name: "target-overlap", Severity: Error, check: overlaps,
		What:   "targets of several groups match a module, and clients choose different groups, or one that its tensors are not of",
		Why:    "compressed-tensors takes the first target by its text, vLLM the first group of the file",
		Remedy: "make the targets disjoint: `convert` to the same convention writes them so",
		Source: "compressed-tensors#862",
	},
	{
		ID: "L17", Name: "target-order", Severity: Warning, check: groupOrder,
		What:   "targets of several groups match a module, and the groups are not sorted by name",
		Why:    "programs that write config.json again sort the groups, and then another one applies",
		Remedy: "make the targets disjoint, or number the groups with leading zeros",
		Source: "llm-compressor#3028",
	},
	{
		ID: "L18", Name: "target-class-mixed", Severity: Error, clients: []string{"trtllm"}, check: classTargets,
		What:   "one of several groups has a class of modules as its target",
		Why:    "the client raises an error",
		Remedy: "name modules or patterns: `convert` to the same convention writes them so",
		Source: "TensorRT-LLM#17725",
	},
	{
		ID: "L19", Name: "target-unmatched", Severity: Warning, check: unmatchedTargets,
		What:   "a target matches no module of the files",
		Why:    "a name is misspelled, or modules are missing: those that are meant are loaded otherwise",
		Remedy: "correct the target",
		Source: "TensorRT-LLM#17725",
	},
	{
		ID: "L20", Name: "group-format-missing", Severity: Error, check: groupFormats,
		What:   "the format is mixed-precision, and a group has no format",
		Why:    "clients take the format of the whole for it, and reject it or load the modules as unquantized",
		Remedy: "add a format to each group: `convert` to the same convention writes them",
		Source: "sglang#32736",
	},
	{
		ID: "L31", Name: "scale-dtype", Severity: Error, check: scaleDtypes,
		explains: []string{"unsupported", structure},
		What:     "a group of 8-bit floats in blocks of 32 has no scale_dtype",
		Why:      "clients take it for FP8 with FP32 scales, not for MXFP8",
		Remedy:   `add "scale_dtype": "torch.uint8"`,
		Source:   "compressors/mxfp8/base.py of compressed-tensors 0.20",
	},
	{
		ID: "L49", Name: "quantized-untargeted", Severity: Error,
		What:   "a weight is quantized, and no target selects it",
		Why:    "the client reads its codes as values",
		Remedy: "`convert` to the same convention, which writes targets",
		Source: "compressed-tensors 0.20",
	},
}

// className matches a target that is a class of modules, such as Linear.
var className = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// A target is one entry of a group.
type target struct {
	group   int
	text    string
	matches func(module string) bool
}

// targets returns the entries of all groups that are no classes, in the order of the file.
func (c *checker) targets() (all []target) {
	if !compressedTensors.Is(c.Convention) {
		return nil
	}
	for i, g := range c.config.groups {
		for _, text := range g.Targets {
			if _, isModule := c.Lookup(text + weightSuffix); isModule || !className.MatchString(text) {
				all = append(all, target{i, text, c.Convention.Ignored([]string{text})})
			}
		}
	}
	return all
}

// byLibrary returns targets in the order of compressed-tensors: names before patterns, each by its text
// (match_named_modules in utils/match.py).
func byLibrary(targets []target) []target {
	return slices.SortedStableFunc(slices.Values(targets), func(a, b target) int {
		pa, pb := strings.HasPrefix(a.text, "re:"), strings.HasPrefix(b.text, "re:")
		switch {
		case pa == pb:
			return strings.Compare(a.text, b.text)
		case pa:
			return 1
		}
		return -1
	})
}

// chosen returns the group of the first target that matches a module, −1 for none.
func chosen(targets []target, module string) int {
	i := slices.IndexFunc(targets, func(t target) bool { return t.matches(module) })
	if i < 0 {
		return -1
	}
	return targets[i].group
}

// eachOverlap calls f with the quantized weights that targets of several groups match, and the groups of their first match in
// the orders of compressed-tensors and of the file.
func (c *checker) eachOverlap(f func(w *checkpoint.Weight, library, file int)) {
	inFile := c.targets()
	if len(c.config.groups) < 2 || len(inFile) < 2 {
		return
	}
	library := byLibrary(inFile)
	for _, w := range c.Weights {
		if !w.Quantized() {
			continue
		}
		module, first := moduleOf(w.Name), -1
		for _, t := range inFile {
			if !t.matches(module) {
				continue
			}
			if first >= 0 && t.group != first {
				f(w, chosen(library, module), first)
				break
			}
			if first < 0 {
				first = t.group
			}
		}
	}
}

// describes reports whether a group is of the format of a weight, as far as bits and block sizes tell.
func (g *group) describes(w *checkpoint.Weight) bool {
	if g.Weights.Bits != w.Format.Element.Bits() {
		return false
	}
	return g.Weights.GroupSize == nil || *g.Weights.GroupSize <= 0 || *g.Weights.GroupSize == w.Format.Block.Cols
}

func overlaps(c *checker) {
	c.eachOverlap(func(w *checkpoint.Weight, library, file int) {
		a, b := &c.config.groups[library], &c.config.groups[file]
		switch {
		case !a.describes(w):
			c.report(w.Name, "it is %s, and compressed-tensors chooses %s of the groups whose targets match it", w.FormatName(), a.name)
		case !b.describes(w):
			c.report(w.Name, "it is %s, and vLLM chooses %s of the groups whose targets match it", w.FormatName(), b.name)
		}
	})
}

func groupOrder(c *checker) {
	sorted := slices.IsSortedFunc(c.config.groups, func(a, b group) int { return strings.Compare(a.name, b.name) })
	if sorted {
		return
	}
	c.eachOverlap(func(w *checkpoint.Weight, library, file int) {
		if c.config.groups[library].describes(w) && c.config.groups[file].describes(w) { // else it is rule target-overlap
			c.report(w.Name, "targets of several groups match it, and after the groups are sorted by name another one is the first")
		}
	})
}

func classTargets(c *checker) {
	if len(c.config.groups) < 2 {
		return
	}
	for _, g := range c.config.groups {
		for _, text := range g.Targets {
			if className.MatchString(text) {
				c.report("", "the target %s of %s is a class of modules, beside %d other groups", text, g.name, len(c.config.groups)-1)
			}
		}
	}
}

func unmatchedTargets(c *checker) {
	for _, t := range c.targets() {
		if !slices.ContainsFunc(c.Weights, func(w *checkpoint.Weight) bool { return t.matches(moduleOf(w.Name)) }) {
			c.report("", "the target %q of %s matches no module", t.text, c.config.groups[t.group].name)
		}
	}
}

func groupFormats(c *checker) {
	mixed := compressedTensors.MixedScheme()
	for _, g := range c.config.groups {
		if c.config.format == mixed && g.Format == nil {
			c.report("", "%s has no format, and that of the whole is %s", g.name, mixed)
		}
	}
}

func scaleDtypes(c *checker) {
	const block = 32
	for _, g := range c.config.groups {
		if w := g.Weights; w.Type == "float" && w.Bits == 8 && w.GroupSize != nil && *w.GroupSize == block && w.ScaleDtype == nil {
			c.report("", "%s has 8-bit floats in groups of %d and no scale_dtype", g.name, block)
		}
	}
}
