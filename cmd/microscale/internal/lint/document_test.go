package lint

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/lint.md")

// TestDocument checks that docs/lint.md has the table of rules.
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "..", "..", "..", "docs", "lint.md")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- tables: go test ./cmd/microscale/internal/lint -update -->\n", "<!-- end of tables -->\n"
	before, rest, ok := strings.Cut(string(got), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks %q and %q", path, begin, end)
	}
	var b strings.Builder
	b.WriteString("| id | rule | severity | reads | clients | finds | why | remedy | source |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range All() {
		clients := strings.Join(r.clients, ", ")
		if r.check == nil && clients == "" {
			clients = "of each finding"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.ID, r.Name, r.Severity, r.Needs, clients,
			r.What, r.Why, r.Remedy, r.Source)
	}
	want := before + begin + "\n" + b.String() + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(got) != want {
		t.Errorf("%s is out of date: go test ./cmd/microscale/internal/lint -update", path)
	}
}

// TestDocuments: JSON and SARIF have every finding, with its place.
func TestDocuments(t *testing.T) {
	dir := dense(128, 128).quantize(t, ctMXFP8)
	d := readDirectory(t, dir)
	d.quantization()["ignore"] = []any{}
	d.write(t, dir)
	r := check(t, dir, "transformers")
	if doc := NewDocument(dir, r); len(doc.Findings) != 1 || doc.Errors != 1 || doc.Findings[0].Tensor != "lm_head.weight" ||
		doc.Findings[0].File != "model.safetensors" || doc.Findings[0].Rule != "L10" {
		t.Errorf("document %+v", doc)
	}
	data, err := json.Marshal(NewSARIF(filepath.Join("models", "of 100%"), r))
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string `json:"version"`
		Runs    []struct {
			Tool struct {
				Driver struct {
					Rules []struct {
						ID string `json:"id"`
					} `json:"rules"`
				} `json:"driver"`
			} `json:"tool"`
			Results []struct {
				RuleID    string `json:"ruleId"`
				RuleIndex int    `json:"ruleIndex"`
				Level     string `json:"level"`
				Locations []struct {
					Physical struct {
						Artifact struct {
							URI string `json:"uri"`
						} `json:"artifactLocation"`
					} `json:"physicalLocation"`
				} `json:"locations"`
			} `json:"results"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(data, &log); err != nil || log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Results) != 1 {
		t.Fatalf("%s (%v)", data, err)
	}
	run := log.Runs[0]
	if one := run.Results[0]; one.RuleID != "L10" || run.Tool.Driver.Rules[one.RuleIndex].ID != "L10" || one.Level != "error" ||
		one.Locations[0].Physical.Artifact.URI != "models/of%20100%25/model.safetensors" {
		t.Errorf("result %+v", one)
	}
}

func TestArtifactURI(t *testing.T) {
	for _, tc := range [][3]string{
		{"models/a", "config.json", "models/a/config.json"},
		{"models/a/", "config.json", "models/a/config.json"},
		{"/models/ä#1", "config.json", "/models/%C3%A4%231/config.json"},
		{"a/model.gguf", "model.gguf", "a/model.gguf"},
		{"sample:", "model.safetensors", "./sample:/model.safetensors"},
		{"hf://owner/name", "config.json", "hf://owner/name/config.json"},
	} {
		if got := artifactURI(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%s of %s is %q, want %q", tc[1], tc[0], got, tc[2])
		}
	}
}

// TestPrintGroups: findings of a rule for the same clients are printed together, the first three of them.
func TestPrintGroups(t *testing.T) {
	dir := dense(128, 128).quantize(t, moNVFP4)
	d := readDirectory(t, dir)
	for _, name := range []string{"self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.v_proj"} {
		d.ignore(layer0 + name)
		d.sidecarIgnore(layer0 + name)
	}
	d.tensors[layer0+"self_attn.v_proj.input_scale"].put(0.5)
	d.write(t, dir)
	r := check(t, dir, "vllm sglang trtllm")
	var b strings.Builder
	if err := Print(&b, dir, r, false); err != nil {
		t.Fatal(err)
	}
	heads := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "error ") || strings.HasPrefix(line, "warning ") {
			if heads[line] {
				t.Errorf("%q is printed twice", line)
			}
			heads[line] = true
		}
	}
	if len(heads) < 2 || !strings.Contains(b.String(), " more\n") {
		t.Errorf("printed\n%s", b.String())
	}
}
