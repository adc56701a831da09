package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/hf"
)

// TestVerifyJSON checks the document: null for an exact copy, and lower-case dtypes for
// unquantized weights.
func TestVerifyJSON(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	done(t, "quantize", src, dst, "--format", "nvfp4")
	var doc map[string]any
	if status := document(t, &doc, "verify", src, dst); status != exitDone {
		t.Fatalf("exit status %d", status)
	}
	if got := slices.Sorted(maps.Keys(doc)); !slices.Equal(got, []string{"blocks", "compared", "not_compared", "notes", "ok", "problems",
		"tensors"}) || doc["ok"] != true {
		t.Errorf("the document has %q, ok is %v", got, doc["ok"])
	}
	if problems, ok := doc["problems"].([]any); !ok || len(problems) != 0 {
		t.Errorf("problems are %v, want an empty list", doc["problems"])
	}
	if compared := doc["compared"].(map[string]any); compared["bounded"] != 1.0 || compared["rounded"] != 0.0 ||
		compared["identical"] != 1.0 || len(doc["not_compared"].([]any)) != 1 {
		t.Errorf("compared: %v, not compared: %v", compared, doc["not_compared"])
	}
	tensors := doc["tensors"].([]any)
	first, last := tensors[0].(map[string]any), tensors[1].(map[string]any)
	want := []string{"bias", "check", "cols", "cosine", "flushed", "format", "max_relative", "mean_block_sqnr_db", "name", "nonfinite",
		"nonfinite_source", "rows", "saturated", "sqnr_db"}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("a tensor has %q, want %q", got, want)
	}
	if sqnr, ok := first["sqnr_db"].(float64); !ok || sqnr < 15 || sqnr > 30 || first["name"] != "l.0.proj.weight" ||
		first["format"] != "nvfp4" || first["rows"] != 64.0 || first["cols"] != 128.0 {
		t.Errorf("%v", first)
	}
	if last["sqnr_db"] != nil || last["mean_block_sqnr_db"] != nil || last["format"] != "bf16" || last["name"] != "lm_head.weight" ||
		last["cosine"] != 1.0 {
		t.Errorf("%v", last)
	}
}

// TestVerifyGarbage checks that a checkpoint of other numbers, and copies of zeros, are
// problems.
func TestVerifyGarbage(t *testing.T) {
	dir := t.TempDir()
	src, other, dst := filepath.Join(dir, "src"), filepath.Join(dir, "other"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	// other random numbers
	directory(t, other, weight{name: "lm_head.weight", shape: []int64{8, 64}}, weight{name: "l.0.proj.weight", shape: []int64{64, 128}})
	done(t, "quantize", other, dst, "--format", "mxfp4")
	var doc conversion.VerifyDocument
	if status := document(t, &doc, "verify", src, dst); status != exitFailed || doc.OK || len(doc.Problems) != 2 || doc.Blocks[0].Beyond == 0 {
		t.Errorf("exit status %d, %+v", status, doc)
	}
	status, stdout, stderr := execute("", "verify", src, dst)
	if status != exitFailed || strings.Contains(stdout+stderr, "matches") || !strings.Contains(stdout,
		"lm_head.weight: 511 of its bf16 elements differ") || !strings.Contains(stdout,
		"of its elements are further from the source than any rounding to mxfp4") {
		t.Errorf("exit status %d, verify prints\n%s%s", status, stdout, stderr)
	}
}

// TestVerifyText checks that the summary lists what was compared, and what was not.
func TestVerifyText(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	done(t, "quantize", src, dst, "--format", "nvfp4", "--convention", "modelopt", "--calibration", "constant")
	text := done(t, "verify", src, dst, "--min-sqnr", "15")
	for _, want := range []string{dst + " matches " + src + ", in ", "\n  1 weight quantized: every scale and decoded element within the " +
		"bound of the format\n", "\n  1 weight not quantized: identical to the bit\n",
		"\n  not compared: scales of activations (1): they depend on inputs\n", "\n  not compared: config.json beyond its quantization"} {
		if !strings.Contains(text, want) {
			t.Errorf("verify prints\n%s\nwithout %q", text, want)
		}
	}
	if status, stdout, stderr := execute("", "verify", src, dst, "--min-sqnr", "40"); status != exitFailed || !strings.Contains(stderr,
		"l.0.proj.weight: its SQNR is 19.82 dB") || strings.Contains(stdout, "matches") {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
	for _, db := range []string{"0", "-3", "NaN", "inf"} {
		if status, _, stderr := execute("", "verify", src, dst, "--min-sqnr="+db); status != exitUsage || !strings.Contains(stderr,
			"want a positive number of decibels") {
			t.Errorf("%s: exit status %d, %s", db, status, stderr)
		}
	}
}

// TestVerifyProblems checks that the document and the table are printed despite
// structural problems, with status 1 and their number on standard error.
func TestVerifyProblems(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	done(t, "quantize", src, dst, "--format", "mxfp8")
	path := filepath.Join(dst, hf.ConfigName)
	config, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, []byte(strings.NewReplacer(`"lm_head"`, `"l.0.proj"`, `"re:(.*[.])?lm_head`, `"re:none`).Replace(string(config))))
	status, stdout, stderr := execute("", "verify", src, dst)
	if status != exitFailed || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr,
		"2 problems, the first: l.0.proj.weight: it is quantized") {
		t.Errorf("exit status %d, %q", status, stderr)
	}
	if !strings.Contains(stdout, "mxfp8") || strings.Count(stdout, "\nproblem: ") != 2 {
		t.Errorf("verify prints\n%s", stdout)
	}
	status, stdout, stderr = execute("", "verify", src, dst, "--json")
	var doc conversion.VerifyDocument
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || status != exitFailed || doc.OK || len(doc.Problems) != 2 ||
		len(doc.Tensors) != 2 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d, %+v, %v, %q", status, doc, err, stderr)
	}
	if p := doc.Problems[1]; p.Tensor != "lm_head.weight" || !strings.Contains(p.Text, "not on the ignore list") {
		t.Errorf("%+v", doc.Problems)
	}
}

// TestVerifyNonFinite checks that values that became NaN are a problem, with their
// number.
func TestVerifyNonFinite(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	directory(t, dst, weight{"l.0.proj.weight", []int64{64, 128}, map[int]uint16{3: bf16NaN, 4: bf16Inf}},
		weight{name: "lm_head.weight", shape: []int64{8, 64}})
	status, stdout, stderr := execute("", "verify", src, dst)
	if status != exitFailed || !strings.Contains(stderr, "1 problem, the first: l.0.proj.weight: 2 of its values are NaN or Inf but "+
		"finite in the source") || !strings.Contains(stdout, "l.*.proj.weight") {
		t.Errorf("exit status %d, %q, %q", status, stdout, stderr)
	}
	if status, _, stderr := execute("", "verify", dst, dst); status != exitDone {
		t.Errorf("where the source has them too: exit status %d, %s", status, stderr)
	}
}
