package lint

import (
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
)

// listRules are about the list of unquantized modules.
var listRules = []Rule{
	{
		ID: "L09", Name: "ignored-quantized", Severity: Error,
		What:   "a weight is quantized and on the ignore list",
		Why:    "the client reads its codes as values, or rejects their shape",
		Remedy: "`repair`",
		Source: "vllm#45132",
	},
	{
		ID: "L10", Name: "unquantized-unlisted", Severity: Error, exempts: unlistedHead,
		What:   "a weight of a linear module is neither quantized nor on the ignore list",
		Why:    "the client looks for its scales, and fails or computes with what memory holds",
		Remedy: "`repair`",
		Source: "vllm#38832",
	},
	{
		ID: "L11", Name: "ignore-parent", Severity: Error,
		What:   "an entry of the ignore list is the name of a module that has quantized ones below it",
		Why:    "the client takes it for a prefix, and loads the modules below as unquantized",
		Remedy: "`repair`, which names the modules themselves",
		Source: "sglang#32736",
	},
	{
		ID: "L12", Name: "ignore-substring", Severity: Error,
		What:   "an entry of the ignore list is inside the name of a quantized module",
		Why:    "the client matches substrings, and loads that module as unquantized",
		Remedy: "`repair`, which names the modules themselves",
		Source: "sglang#32736",
	},
	{
		ID: "L13", Name: "ignore-expert-names", Severity: Error, clients: []string{"vllm", "sglang"}, check: expertNames,
		What:   "unquantized experts of a layer are on the ignore list by the name of their tensor or module alone",
		Why:    "the client looks up the linear modules of the first expert, such as experts.0.gate_proj",
		Remedy: "`repair`",
		Source: "vllm#41994",
	},
	{
		ID: "L14", Name: "ignore-fused-partial", Severity: Error, clients: engines, check: partlyListed,
		explains: []string{"ignored-quantized", "unquantized-unlisted"},
		What:     "a fused set of one format is on the ignore list in part",
		Why:      "the client rejects a fused module whose weights disagree",
		Remedy:   "`repair`",
		Source:   "sglang#35797",
	},
	{
		ID: "L15", Name: "ignore-wrapper", Severity: Error, check: wrapped, exempts: unlistedHead,
		explains: []string{"unquantized-unlisted"},
		What:     "the ignore list names a module X as X.linear",
		Why:      "that is its name inside the tool that quantized it, and clients do not find it",
		Remedy:   "`repair`",
		Source:   "sglang#35792",
	},
	{
		ID: "L47", Name: "ignore-wildcard", Severity: Error,
		What:   "an entry of the exclude list has wildcards that the client does not support",
		Why:    "the client expects the modules quantized",
		Remedy: "name the modules",
		Source: "layers/quantization/quark of vLLM 0.32 and SGLang 0.5.23",
	},
	{
		ID: "L50", Name: "tied-head", Severity: Error,
		What:   "the output head is tied to the embedding and not on the ignore list",
		Why:    "the client builds it quantized, and finds no codes",
		Remedy: "`repair`",
		Source: "transformers 5.23 with compressed-tensors 0.20, by running",
	},
	{
		ID: "L51", Name: "moved-names", Severity: Error,
		What:   "the ignore list has names of the files where the client has other ones",
		Why:    "the client builds the modules quantized",
		Remedy: "convert to the same convention, which writes patterns",
		Source: "conversion_mapping.py of transformers 5.24",
	},
	{
		ID: "L67", Name: "ignore-one-expert", Severity: Error, clients: []string{"vllm"}, check: oneExpert,
		What:   "the list of unquantized modules of quant_method fp8 names one expert of a layer with quantized ones",
		Why:    "the client looks for the name of the experts inside the entries, and loads all experts of the layer as unquantized",
		Remedy: "take the entry off the list: the experts of a layer are all quantized, or none",
		Source: "is_layer_skipped in layers/quantization/utils/quant_utils.py of vLLM",
	},
	{
		ID: "L68", Name: "ignore-class", Severity: Error, clients: []string{"transformers"}, check: ignoredClass,
		What:   "the ignore list of compressed-tensors has the class of linear modules, and weights of them are quantized",
		Why:    "the client compares entries with classes too, and loads codes as values, or other weights at random; vLLM compares names alone",
		Remedy: "`repair`",
		Source: "is_match in utils/match.py of compressed-tensors 0.20, and by running transformers 5.23",
	},
}

// ignoredClass: is_match of compressed-tensors finds a module on the list by its class.
func ignoredClass(c *checker) {
	if compressedTensors.Is(c.Convention) && slices.Contains(c.Ignore, checkpoint.LinearClass) && c.Quantized() > 0 {
		c.report("", "%q is on the ignore list, and the client loads the %d quantized weights as unquantized", checkpoint.LinearClass,
			c.Quantized())
	}
}

// oneExpert: the client skips experts if the name of their module is inside an entry with "experts" in it.
func oneExpert(c *checker) {
	if c.config.method != "fp8" {
		return
	}
	seen := map[string]bool{} // experts of a layer
	for _, w := range c.Weights {
		if !w.Quantized() || !family.SingleExpert(w.Name) || seen[family.ExpertsOf(w.Name)] {
			continue
		}
		experts := family.ExpertsOf(w.Name)
		seen[experts] = true
		if i := slices.IndexFunc(c.Ignore, func(entry string) bool { return strings.Contains(entry, experts) }); i >= 0 {
			c.report(w.Name, "it is quantized, and the client takes the entry %q of the list for all experts of the layer", c.Ignore[i])
		}
	}
}

// expertNames: the client asks for the modules of the first expert.
func expertNames(c *checker) {
	if !compressedTensors.Is(c.Convention) {
		return
	}
	listed := c.Convention.Ignored(c.Ignore)
	unlisted := c.ExpertsUnlisted()
	for _, w := range c.Weights {
		modules := w.ExpertModules()
		if len(modules) == 0 || w.Quantized() || slices.Contains(unlisted, w) {
			continue
		}
		first := slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return !family.SingleExpert(m + weightSuffix) })
		if len(first) > 0 && !slices.ContainsFunc(first, listed) {
			c.report(w.Name, "its experts are on the ignore list as %s, and the client looks for %s", listedAs(modules, listed), first[0])
		}
	}
}

// listedAs returns the first of modules that is on a list.
func listedAs(modules []string, listed func(string) bool) string {
	return modules[slices.IndexFunc(modules, listed)]
}

// partlyListed: weights of one fused matrix with one format are all on the list, or none.
func partlyListed(c *checker) {
	expected := c.Expected()
	c.sets(func(weights []*checkpoint.Weight) {
		some, all := false, true
		for _, w := range weights {
			on := !expected(moduleOf(w.Name))
			some, all = some || on, all && on
			if w.FormatName() != weights[0].FormatName() {
				return // rule set-format
			}
		}
		if !some || all {
			return
		}
		for _, w := range weights {
			switch on := !expected(moduleOf(w.Name)); {
			case on && w.Quantized():
				c.report(w.Name, "it is on the ignore list, and others that the client fuses with it are not: it is quantized")
			case !on && !w.Quantized():
				c.report(w.Name, "it is not on the ignore list, and others that the client fuses with it are: it is not quantized")
			}
		}
	})
}

// wrapped: an entry of the list is the name of an unlisted module with the end .linear, and no module has the name of the entry.
func wrapped(c *checker) {
	const end = ".linear"
	expected := c.Expected()
	for _, entry := range c.Ignore {
		module, ok := strings.CutSuffix(entry, end)
		if _, exists := c.Lookup(entry + weightSuffix); !ok || exists {
			continue
		}
		if w, ok := c.Lookup(module + weightSuffix); ok && !w.Quantized() && expected(module) {
			c.report(w.Name, "the ignore list has it as %s, and clients look for %s", entry, module)
		}
	}
}

// unlistedHead: vLLM builds an output head that only a class of modules selects as unquantized, so it needs not be on the list
// (get_quant_method of compressed-tensors in vLLM 0.32).
func unlistedHead(c *checker, name, tensor string) bool {
	return name == "vllm" && compressedTensors.Is(c.Convention) && tensor == c.Family().Stored("lm_head"+weightSuffix) &&
		chosen(c.targets(), moduleOf(tensor)) < 0
}
