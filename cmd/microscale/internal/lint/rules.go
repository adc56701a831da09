package lint

import (
	"slices"
	"strings"
)

// rules are all rules, by their ids. It is set in init, because checks refer to rows.
var rules []Rule

// The names of rows that code looks for.
const (
	unread      = "unread"
	structure   = "structure"
	unreadable  = "config-type"
	unsupported = "unsupported"
)

func init() {
	rules = slices.Concat(fusedRules, inputRules, listRules, targetRules, fileRules, layoutRules, scaleRules, modelRules, nameRules,
		numberRules, otherRules)
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
}

// lookup returns the rule of a problem of another package.
func lookup(name string) *Rule {
	if i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name }); i >= 0 {
		return &rules[i]
	}
	return lookup(structure)
}

// engines are the programs that fuse modules into one matrix.
var engines = []string{"vllm", "sglang", "trtllm"}

// otherRules are about checkpoints that no other rule describes.
var otherRules = []Rule{
	{
		ID: "L00", Name: structure, Severity: Error,
		What:   "tensors, configuration or metadata contradict each other, or something is missing",
		Why:    "the values of weights are unknown, or differ between programs",
		Remedy: "that of the finding; where it has none, fetch the checkpoint again, or quantize again",
		Source: "the convention of the checkpoint (package checkpoint)",
	},
	{
		ID: "L45", Name: unread, Severity: Error, unread: true,
		What:   "a client does not read the convention or the scheme",
		Why:    "it rejects the checkpoint",
		Remedy: "that of the finding; where it has none, `convert --for CLIENT`, or quantize the original with `--for CLIENT`",
		Source: "loaders of the clients (docs/conventions.md)",
	},
	{
		ID: "L46", Name: unsupported, Severity: Error,
		What:   "quantization_config is not understood here",
		Why:    "no other rule can be applied",
		Remedy: "that of the finding; where it has none, correct quantization_config, or fetch the checkpoint again",
		Source: "package checkpoint",
	},
	{
		ID: "L59", Name: "none-quantized", Severity: Error,
		What:   "quantization_config names a convention, and no weight is quantized",
		Why:    "clients look for codes and scales that are not there",
		Remedy: "fetch the checkpoint again, or remove quantization_config if its weights are values",
		Source: "package checkpoint",
	},
	{
		ID: "L60", Name: unreadable, Severity: Error,
		What: "a member of quantization_config or hf_quant_config.json has another JSON type than clients expect, " +
			"or names an unknown algorithm of the KV cache",
		Why:    "clients reject the file or ignore the member, and rules that need it are not applied",
		Remedy: "correct the member, or fetch the checkpoint again",
		Source: "our reading of the files",
	},
}
