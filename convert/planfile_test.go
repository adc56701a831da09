package convert

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestPlanFile writes plans as files: each leads to the same plan, and has the weights that stay as they are.
func TestPlanFile(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	for _, o := range []QuantizeOptions{
		{Quantizer: quant.Quantizer{Format: quant.MXFP8}},
		{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Include: patterns("lm_head"),
			Rules: rules(t, `layers\.[13]\.=keep`, "self_attn=fp8-row", "mlp=mxfp8:MXFP8A16")},
		{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "plain", Exclude: patterns(`layers\.3\..*experts\.1\.`)},
	} {
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "plan.toml")
		if err := plan.WritePlanFile(path, o.Include); err != nil {
			t.Fatal(err)
		}
		if err := plan.WritePlanFile(path, o.Include); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a file is replaced: %v", err)
		}
		file, err := ReadPlanFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again := QuantizeOptions{Convention: o.Convention}
		if again.Rules, err = file.Rules(); err != nil {
			t.Fatal(err)
		}
		if again.Include, err = file.Includes(); err != nil {
			t.Fatal(err)
		}
		same, err := PlanQuantize(t.Context(), src.Source, again)
		if err != nil {
			t.Fatalf("%v\n%s", err, plan.PlanFile(o.Include))
		}
		a, b := slices.Collect(plan.Decisions()), slices.Collect(same.Decisions())
		for i := range a {
			a[i].Reason, b[i].Reason = Reason{}, Reason{}
		}
		if !reflect.DeepEqual(a, b) || string(plan.Config()) != string(same.Config()) {
			t.Errorf("the file leads to another plan:\n%s", plan.PlanFile(o.Include))
		}
		if text := string(plan.PlanFile(nil)); !strings.Contains(text,
			"[[rule]] # 1 weight: embedding\nmatch = '^model\\.embed_tokens\\.weight$'\nformat = \"keep\"\n") {
			t.Errorf("the embedding is missing:\n%s", text)
		}
	}
}

// TestPlanFileDamaged lists errors of plan files.
func TestPlanFileDamaged(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "no format and no rules",
		"format = 1":                        "not a plan",
		"[[rules]]\nmatch = 'a'":            "unknown key rules",
		"[[rule]]\nmatch = 'a'\nto = 'b'":   "unknown key rule.to",
		"[[rule]]\nmatch = '('\nformat='a'": "rule 1: \"(\" is not a regular expression",
		"[[rule]]\nmatch = 'a'":             "rule 1: format is missing",
		"[[rule]]\nformat = 'keep'":         "rule 1: match is missing",
	} {
		path := filepath.Join(t.TempDir(), "plan.toml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := ReadPlanFile(path)
		if err == nil {
			_, err = file.Rules()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
