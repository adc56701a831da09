package interop

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A loadedCheckpoint is what became of a checkpoint in a client.
type loadedCheckpoint struct {
	Rejected string   `json:"rejected"`
	Other    int      `json:"other"`  // weights with other values
	Inputs   int      `json:"inputs"` // weights for whose activations it has another scale than the file
	Report   []string `json:"report"` // lists of names in the report of loading that are not empty
	Loss     string   `json:"loss"`   // "": not computed
}

// outcome describes it beside the loss of the decoded values.
func (l loadedCheckpoint) outcome(loss float64) string {
	got, err := strconv.ParseFloat(l.Loss, 64)
	text := "right"
	switch {
	case l.Rejected != "":
		cause, _, _ := strings.Cut(strings.ReplaceAll(l.Rejected, "\n", " "), " at 0x")
		return "rejected: " + strings.ReplaceAll(cause[:min(len(cause), 110)], "|", `\|`)
	case l.Other > 0:
		text = fmt.Sprintf("**other values** (weights: %d)", l.Other)
	case l.Inputs > 0:
		text = fmt.Sprintf("**other scales of activations** (weights: %d)", l.Inputs)
	case l.Loss != "" && (err != nil || math.Abs(got-loss) > 0.01*loss): // activations and products are in BF16
		text = "**another loss**"
	}
	if len(l.Report) > 0 {
		return text + "; its report has " + strings.Join(l.Report, ", ")
	}
	return text
}

// TestConformanceClients loads the checkpoints of the corpus in transformers with compressed-tensors: those without a fault have the
// values and the loss of ours, and docs/conformance.md has what becomes of the others.
func TestConformanceClients(t *testing.T) {
	interpreter := bitsTorch("compressed-tensors==0.20.0", "transformers==5.23.0", "accelerate==1.15.0")(t)
	conformanceIn(t, interpreter, "transformers", "conformance_clients.py", `"compressed-tensors"`, func(rule string) string {
		return conformanceMisread[rule]
	})
}

// TestConformanceMLX loads them, of all conventions, in mlx-lm, which rejects all but those of its own: it has neither the names nor the
// formats of others for these families.
func TestConformanceMLX(t *testing.T) {
	interpreter := bitsTorch("mlx-lm==0.32.2", "mlx[cpu]==0.32.4", "transformers==5.24.0")(t)
	conformanceIn(t, interpreter, "mlx-lm", "conformance_mlx.py", "", func(rule string) string {
		if rule == "scale-subnormal" {
			return ""
		}
		return "rejected: ValueError"
	})
}

// TestConformanceVLLM loads them, of all conventions, in vLLM, whose kernels are stubs. Those without a fault have our values, and lint
// says what becomes of the others.
func TestConformanceVLLM(t *testing.T) {
	outcomes := conformanceIn(t, vllm(t), "vLLM", "conformance_vllm.py", "", func(rule string) string {
		return map[string]string{"scale-subnormal": "rejected", "kv_b-tile": "rejected"}[rule] // mlx, and no weight of a Llama
	})
	program, root := build(t), t.TempDir()
	for rule, outcome := range outcomes {
		dir := filepath.Join(root, rule)
		unzip(t, filepath.Join(conformanceRoot, rule+".zip"), dir)
		out, err := command(time.Minute, program, "lint", filepath.Join(dir, "broken"), "--for", "vllm", "--scales", "--json")
		var report struct{ Errors *int }
		if json.NewDecoder(bytes.NewReader(out)).Decode(&report) != nil || report.Errors == nil || (*report.Errors > 0) != (err != nil) {
			t.Errorf("%s: lint: %v\n%s", rule, err, out)
			continue
		}
		// The second file is not read, a warning is no error, and the good one is rejected too.
		other := slices.Contains([]string{"config-file-contradiction", "input-set", "kv_b-tile"}, rule)
		if found := *report.Errors > 0; found == strings.HasPrefix(outcome, "right") && !other {
			t.Errorf("%s: the client's outcome is %s, and that lint finds an error is %v", rule, outcome, found)
		}
	}
}

// conformanceRoot has the checkpoints of the corpus.
var conformanceRoot = filepath.Join("..", "..", "..", "conformance", "checkpoints")

// conformanceIn loads the checkpoints of a convention in a client by a script. misread returns what a client says of a checkpoint of a
// rule without its fault; "" if that is right. It returns the outcomes with the faults, by rule.
func conformanceIn(t *testing.T, interpreter, name, program, convention string, misread func(rule string) string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(conformanceRoot, "corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		File, Rule, ID string
		Good           bool
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	result := filepath.Join(out, "result.json")
	arguments := []string{build(t), result}
	for _, c := range cases {
		dir := filepath.Join(out, c.Rule)
		unzip(t, filepath.Join(conformanceRoot, c.File), dir)
		if c.Good && !slices.ContainsFunc([]string{"good", "broken"}, func(kind string) bool {
			text := string(read(t, filepath.Join(dir, kind), "config.json"))
			return !strings.Contains(text, convention) || !strings.Contains(text, `"llama"`) && !strings.Contains(text, `"qwen3_moe"`)
		}) {
			arguments = append(arguments, dir)
		}
	}
	script(t, interpreter, program, arguments...)
	var got map[string]struct {
		Failed       string
		Loss         string
		Good, Broken loadedCheckpoint
	}
	readJSON(t, result, &got)
	outcomes := map[string]string{}
	var table strings.Builder
	table.WriteString("| fault | without it | with it |\n|---|---|---|\n")
	for _, c := range cases {
		r, ok := got[c.Rule]
		if !ok {
			continue
		}
		loss, err := strconv.ParseFloat(r.Loss, 64)
		if r.Failed != "" || err != nil {
			t.Errorf("%s: %s (%v)", c.Rule, r.Failed, err)
		}
		good := r.Good.outcome(loss)
		if why := misread(c.Rule); good != "right" && !strings.Contains(good, why) || good == "right" && why != "" ||
			good != "right" && why == "" {
			t.Errorf("%s: %s reads the checkpoint without it as %s", c.Rule, name, good)
		}
		outcomes[c.Rule] = r.Broken.outcome(loss)
		fmt.Fprintf(&table, "| %s %s | %s | %s |\n", c.ID, c.Rule, good, outcomes[c.Rule])
	}
	sameGenerated(t, filepath.Join("docs", "conformance.md"), "conformance in "+name, table.String(), same)
	return outcomes
}

// conformanceMisread has checkpoints without a fault that transformers misreads, and what it says or does (rule L38, hf-moe-global).
var conformanceMisread = map[string]string{"expert-format": "other values", "expert-gate-up": "other values",
	"input-scale-missing": "other values"}

// unzip unpacks a ZIP file.
func unzip(t *testing.T, file, dir string) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
