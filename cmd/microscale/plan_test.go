package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
)

// TestDryRun checks that the plan describes the result, and that nothing is written.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	before := snapshot(t, dir)
	var plan conversion.PlanDocument
	if status := document(t, &plan, "quantize", src, dst, "--format", "nvfp4", "--dry-run"); status != exitDone {
		t.Fatalf("exit status %d", status)
	}
	text := done(t, "quantize", src, dst, "--format", "nvfp4", "--dry-run")
	for _, want := range []string{"1 of 2 weights in nvfp4 (compressed-tensors NVFP4A16)", "output head", "nothing was written",
		"config.json, quantization_config: {", `"lm_head"`, "model.safetensors        4"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "weight_packed") || !strings.Contains(done(t, "quantize", src, dst, "--format", "nvfp4", "--dry-run", "--each"),
		"l.0.proj.weight_packed        U8 ") {
		t.Error("the places of tensors are not printed with --each alone")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
	}
	var result conversion.Document
	document(t, &result, "quantize", src, dst, "--format", "nvfp4")
	if plan.Bytes != result.Bytes || !slices.Equal(plan.Ignore, headIgnored) {
		t.Errorf("the plan was %+v, the result %+v", plan, result)
	}
	if d := plan.Tensors[0]; !d.Quantize || d.Bytes != 64*64+64*8+4 || len(d.Stored) != 3 || plan.Tensors[1].Quantize ||
		plan.Tensors[1].Reason != "output head" {
		t.Errorf("%+v", plan.Tensors)
	}
}

// headIgnored is the ignore list of a model with an unquantized output head.
var headIgnored = []string{"lm_head", "re:(.*[.])?lm_head([.].*)?$"}

// TestPlanOfPython plans a configuration with numbers that only Python accepts, as text
// and as JSON.
func TestPlanOfPython(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	writeFile(t, filepath.Join(src, "config.json"), []byte(`{"time_step_limit": [0.0, Infinity], "torch_dtype": "bfloat16"}`))
	if text := done(t, "quantize", src, dst, "--format", "mxfp8", "--dry-run"); !strings.Contains(text,
		"config.json, quantization_config: {") || strings.Contains(text, "time_step_limit") {
		t.Errorf("the plan is\n%s", text)
	}
	var plan conversion.PlanDocument
	if status := document(t, &plan, "quantize", src, dst, "--format", "mxfp8", "--dry-run"); status != exitDone ||
		!strings.Contains(string(plan.Config), "time_step_limit") {
		t.Errorf("exit status %d, configuration %s", status, plan.Config)
	}
}

// TestPlanIsResult checks that every command writes the planned files: sizes, the offset
// of every tensor, configuration and index.
func TestPlanIsResult(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, args := range [][]string{
		{"quantize", "sample:", at("nvfp4"), "--format", "nvfp4"},
		{"quantize", "sample:", at("tensor"), "--format", "fp8-tensor"},
		{"quantize", "sample:", at("plain"), "--format", "mxfp6-e2m3"},
		{"quantize", "sample:", at("file.gguf"), "--format", "mxfp4"},
		{"convert", at("nvfp4"), at("modelopt"), "--convention", "modelopt"}, // global scales without dimensions
		{"convert", at("nvfp4"), at("other.gguf")},
		{"dequantize", at("nvfp4"), at("back")},
		{"quantize", at("file.gguf"), at("directory"), "--format", "mxfp8", "--requantize"},
		{"dequantize", at("file.gguf"), at("weights.safetensors")},
	} {
		t.Run(args[0]+"/"+filepath.Base(args[2]), func(t *testing.T) {
			var plan conversion.PlanDocument
			if status := document(t, &plan, append(args, "--dry-run")...); status != exitDone {
				t.Fatalf("exit status %d", status)
			}
			if text := done(t, append(args, "--dry-run")...); !strings.Contains(text, "nothing was written") {
				t.Errorf("the plan is\n%s", text)
			}
			if _, err := os.Stat(args[2]); err == nil {
				t.Fatal("something was written")
			}
			done(t, args...)
			samePlan(t, plan, args[2])
		})
	}
}

// A place is the location of a tensor.
type place struct {
	dtype, shape string
	offset, size int64
}

// samePlan compares a plan with the files of the result.
func samePlan(t *testing.T, plan conversion.PlanDocument, dst string) {
	t.Helper()
	want := map[string]map[string]place{}
	for _, d := range plan.Tensors {
		for _, s := range d.Stored {
			if s.Shape == nil {
				t.Errorf("%s has the shape null", s.Name)
			}
			if want[d.File] == nil {
				want[d.File] = map[string]place{}
			}
			want[d.File][s.Name] = place{s.Dtype, conversion.ShapeText(s.Shape), s.Offset, s.Bytes}
		}
	}
	single := filepath.Ext(dst) != ""
	for _, f := range plan.Files {
		path := filepath.Join(dst, f.Name)
		if single {
			path = dst
		}
		got, size := places(t, path)
		if size != f.Bytes {
			t.Errorf("%s has %d bytes, and was to have %d", path, size, f.Bytes)
		}
		for name, p := range got {
			if want[f.Name][name] != p {
				t.Errorf("%s: %+v, and was to be %+v", name, p, want[f.Name][name])
			}
		}
		if len(got) != len(want[f.Name]) {
			t.Errorf("%s has %d tensors, and was to have %d", path, len(got), len(want[f.Name]))
		}
	}
	if single {
		return
	}
	for _, c := range plan.Companions {
		if info, err := os.Stat(filepath.Join(dst, c.Name)); err != nil || info.Size() != c.Bytes {
			t.Errorf("%s was to have %d bytes: %v", c.Name, c.Bytes, err)
		}
	}
	entries, err := os.ReadDir(dst)
	if err != nil || len(entries) != len(plan.Files)+len(plan.Companions) {
		t.Errorf("%d files were planned, and there are %v (%v)", len(plan.Files)+len(plan.Companions), entries, err)
	}
	sameJSON(t, filepath.Join(dst, hf.ConfigName), plan.Config)
	if index := filepath.Join(dst, safetensors.IndexName); len(plan.Index) > 0 && string(plan.Index) != "null" {
		sameJSON(t, index, plan.Index)
	}
}

// places returns the locations of the tensors of a file, and its size.
func places(t *testing.T, path string) (map[string]place, int64) {
	t.Helper()
	got := map[string]place{}
	if strings.HasSuffix(path, ".gguf") {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		data := f.Tensors[len(f.Tensors)-1].End
		data += -data & (f.Alignment - 1) // the data are the end of the file, padded
		for _, s := range f.Tensors {
			got[s.Name] = place{s.Type.String(), conversion.ShapeText(s.Shape), f.Size() - data + s.Begin, s.Bytes()}
		}
		return got, f.Size()
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Tensors() {
		got[s.Name] = place{s.Dtype.String(), conversion.ShapeText(s.Shape), f.DataStart() + s.Begin, s.Bytes()}
	}
	return got, f.Size()
}

// sameJSON compares a file with a document.
func sameJSON(t *testing.T, path string, want json.RawMessage) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if err := json.Compact(&a, data); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&b, want); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if a.String() != b.String() {
		t.Errorf("%s is\n%s\nand was to be\n%s", path, a.String(), b.String())
	}
}

// TestPlanLarger checks that a plan starts with a note if the result is larger than the
// source.
func TestPlanLarger(t *testing.T) {
	dir := t.TempDir()
	src, small := filepath.Join(dir, "src"), filepath.Join(dir, "small")
	directory(t, src, twoWeights()...)
	done(t, "quantize", src, small, "--format", "mxfp4")
	text := done(t, "quantize", small, filepath.Join(dir, "large"), "--format", "mxfp8", "--requantize", "--dry-run")
	if !strings.HasPrefix(text, "note: the result is larger than its source: ") {
		t.Errorf("the plan begins with\n%s", text)
	}
}
