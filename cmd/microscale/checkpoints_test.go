package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// A weight is a BF16 tensor of a generated checkpoint: random numbers from ±2^-4 to
// ±2^-2, some of them replaced by the given patterns.
type weight struct {
	name  string
	shape []int64
	put   map[int]uint16 // BF16 patterns by the number of the element
}

const (
	bf16NaN  = 0x7fc0
	bf16Inf  = 0x7f80
	bf16Huge = 0x7f7f
)

// twoWeights returns one weight to quantize and one that stays in BF16.
func twoWeights() []weight {
	return []weight{{name: "l.0.proj.weight", shape: []int64{64, 128}}, {name: "lm_head.weight", shape: []int64{8, 64}}}
}

// weightsFile writes a safetensors file.
func weightsFile(t testing.TB, path string, weights ...weight) {
	t.Helper()
	specs := make([]safetensors.Spec, len(weights))
	for i, w := range weights {
		specs[i] = safetensors.Spec{Name: w.name, Dtype: safetensors.BF16, Shape: w.shape}
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, w := range weights {
		info, _ := layout.Lookup(w.name)
		offset, _ := layout.Offset(w.name)
		for i := range int(info.Elements()) {
			pattern := uint16(rnd.Uint32())&0x80ff + 0x3d80 // sign, and what an exponent of two has room for
			if p, ok := w.put[i]; ok {
				pattern = p
			}
			binary.LittleEndian.PutUint16(data[int(offset)+2*i:], pattern)
		}
	}
	writeFile(t, path, data)
}

// directory writes a checkpoint directory with a configuration and one shard.
func directory(t testing.TB, path string, weights ...weight) {
	t.Helper()
	if err := os.MkdirAll(path, 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(path, hf.ConfigName), []byte(`{"torch_dtype": "bfloat16"}`))
	weightsFile(t, filepath.Join(path, "model.safetensors"), weights...)
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// container returns the bytes of a safetensors file with the given header.
func container(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

// snapshot returns a line for everything below a directory: its path, and the hash of a
// file.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		line := path
		if e.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// fails checks that a command ended with status 1, nothing on standard output, and one
// line on standard error with the given words.
func fails(t *testing.T, status int, stdout, stderr string, want ...string) {
	t.Helper()
	if status != exitFailed || stdout != "" {
		t.Errorf("exit status %d, standard output %q", status, stdout)
	}
	if !strings.HasPrefix(stderr, "microscale: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("standard error is not one line: %q", stderr)
	}
	for _, w := range want {
		if !strings.Contains(stderr, w) {
			t.Errorf("standard error is %q, want %q in it", stderr, w)
		}
	}
}

// done runs a command that must succeed, and returns its output.
func done(t testing.TB, args ...string) string {
	t.Helper()
	status, stdout, stderr := execute("", args...)
	if status != exitDone {
		t.Fatalf("%s: exit status %d: %s", strings.Join(args, " "), status, stderr)
	}
	return stdout
}

// document runs a command with --json and reads its document into v.
func document(t testing.TB, v any, args ...string) (status int) {
	t.Helper()
	status, stdout, stderr := execute("", append(args, "--json")...)
	if err := json.Unmarshal([]byte(stdout), v); err != nil {
		t.Fatalf("%s: exit status %d, %s: %v", strings.Join(args, " "), status, stderr, err)
	}
	return status
}

// damagedFiles are files that package safetensors rejects.
var damagedFiles = []struct {
	name string
	data []byte
	want []string
}{
	{"empty", nil, []string{"x.safetensors"}},
	{"seven bytes", []byte("1234567"), []string{"x.safetensors"}},
	{"truncated", container(`{"a.weight":{"dtype":"BF16","shape":[64,64],"data_offsets":[0,8192]}}`, 8000),
		[]string{"x.safetensors", "a.weight", "192 bytes", "incomplete"}},
	{"trailing bytes", container(`{"a.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 5), []string{"x.safetensors"}},
	{"header longer than the file", []byte("\xff\x00\x00\x00\x00\x00\x00\x00{}"), []string{"x.safetensors", "263", "incomplete"}},
	{"header longer than any", []byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), []string{"x.safetensors"}},
	{"no JSON", container(`{"a.weight":`, 0), []string{"x.safetensors"}},
	{"overlap", container(`{"a.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"b.weight":{"dtype":"BF16","shape":[4],`+
		`"data_offsets":[4,12]}}`, 12), []string{"x.safetensors", "b.weight"}},
	{"hole", container(`{"a.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"b.weight":{"dtype":"BF16","shape":[4],`+
		`"data_offsets":[12,20]}}`, 20), []string{"x.safetensors", "b.weight"}},
	{"hole at the start", container(`{"a.weight":{"dtype":"BF16","shape":[4],"data_offsets":[4,12]}}`, 12),
		[]string{"x.safetensors", "a.weight"}},
	{"duplicate name", container(`{"a.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"a.weight":{"dtype":"BF16","shape":[4],`+
		`"data_offsets":[8,16]}}`, 16), []string{"x.safetensors", "a.weight"}},
	{"shape that overflows", container(`{"a.weight":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8),
		[]string{"x.safetensors", "a.weight"}},
	{"dimension that overflows", container(`{"a.weight":{"dtype":"BF16","shape":[36893488147419103232],"data_offsets":[0,8]}}`, 8),
		[]string{"x.safetensors", "a.weight"}},
	{"negative dimension", container(`{"a.weight":{"dtype":"BF16","shape":[-2,-2],"data_offsets":[0,8]}}`, 8),
		[]string{"x.safetensors", "a.weight"}},
	{"shape of other bytes", container(`{"a.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,9]}}`, 9),
		[]string{"x.safetensors", "a.weight"}},
	{"unknown dtype", container(`{"a.weight":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}}`, 8),
		[]string{"x.safetensors", "a.weight", "F7"}},
	{"another container", []byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00"), []string{"x.safetensors"}},
}

// TestDamagedFiles checks that every command that reads a checkpoint rejects a damaged
// file, alone or in a directory, in one line, and writes nothing.
func TestDamagedFiles(t *testing.T) {
	for _, tc := range damagedFiles {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			file, folder, good := filepath.Join(dir, "x.safetensors"), filepath.Join(dir, "folder"), filepath.Join(dir, "good")
			directory(t, good, twoWeights()...)
			directory(t, folder, twoWeights()...)
			writeFile(t, file, tc.data)
			writeFile(t, filepath.Join(folder, "x.safetensors"), tc.data)
			if err := os.Remove(filepath.Join(folder, "model.safetensors")); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, dir)
			dst := filepath.Join(dir, "dst")
			for _, src := range []string{file, folder} {
				for _, args := range [][]string{
					{"quantize", src, dst, "--format", "mxfp8"}, {"quantize", src, dst, "--format", "mxfp8", "--dry-run"},
					{"dequantize", src, dst}, {"inspect", src}, {"inspect", src, "--json"}, {"verify", src, good}, {"verify", good, src, "--json"},
				} {
					status, stdout, stderr := execute("", args...)
					if args[len(args)-1] == "--json" {
						var doc conversion.VerifyDocument
						if err := json.Unmarshal([]byte(stdout), &doc); err != nil || args[0] == "verify" && (doc.OK || len(doc.Problems) != 1 ||
							doc.Tensors == nil) {
							t.Errorf("%q prints %q, %v", args, stdout, err)
						}
						stdout = ""
					}
					fails(t, status, stdout, stderr, tc.want...)
				}
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
			}
		})
	}
}

// TestDamagedDirectories checks checkpoints with inconsistent files.
func TestDamagedDirectories(t *testing.T) {
	index := func(entries string) map[string]string {
		return map[string]string{safetensors.IndexName: `{"metadata":{"total_size":1},"weight_map":{` + entries + `}}`}
	}
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"index that names a missing file", index(`"a":"other.safetensors"`), []string{safetensors.IndexName, "other.safetensors", `"a"`}},
		{"index that leads out", index(`"a":"../model.safetensors"`), []string{safetensors.IndexName, ".."}},
		{"index of an absolute path", index(`"a":"/model.safetensors"`), []string{safetensors.IndexName, "/model.safetensors"}},
		{"index of a missing tensor",
			index(`"l.0.proj.weight":"model.safetensors","lm_head.weight":"model.safetensors","gone":"model.safetensors"`),
			[]string{safetensors.IndexName, "gone"}},
		{"index without a tensor", index(`"l.0.proj.weight":"model.safetensors"`), []string{"model.safetensors", "lm_head.weight"}},
		{"index that is empty", index(""), []string{safetensors.IndexName}},
		{"index that is no JSON", map[string]string{safetensors.IndexName: "{"}, []string{safetensors.IndexName}},
		{"configuration that is no JSON", map[string]string{hf.ConfigName: "{"}, []string{hf.ConfigName}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
			directory(t, src, twoWeights()...)
			for name, text := range tc.files {
				writeFile(t, filepath.Join(src, name), []byte(text))
			}
			before := snapshot(t, dir)
			for _, args := range [][]string{{"quantize", src, dst, "--format", "mxfp8"}, {"dequantize", src, dst}, {"inspect", src},
				{"verify", src, src}} {
				status, stdout, stderr := execute("", args...)
				fails(t, status, stdout, stderr, tc.want...)
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
			}
		})
	}
}

// TestInspectAdapter checks that inspect reports an adapter.
func TestInspectAdapter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "adapter")
	weights := twoWeights()
	for i, kind := range []string{"A", "B"} {
		weights[i].name = "base_model.model.layers.0.q_proj.lora_" + kind + ".weight"
	}
	directory(t, dir, weights...)
	var doc conversion.InspectDocument
	if status := document(t, &doc, "inspect", dir); status != exitDone || !doc.Adapter {
		t.Errorf("exit status %d, %+v", status, doc)
	}
	if _, stdout, _ := execute("", "inspect", dir); !strings.Contains(stdout, "an adapter, not a model") {
		t.Errorf("it prints %s", stdout)
	}
}

// TestInspect inspects checkpoints that are sound, quantized, damaged, and beside other
// files.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	weightsFile(t, filepath.Join(src, "consolidated.safetensors"), twoWeights()...)
	writeFile(t, filepath.Join(src, "pytorch_model.bin"), []byte("weights"))
	writeFile(t, filepath.Join(src, "tokenizer.json"), []byte("{}"))

	var doc conversion.InspectDocument
	if status := document(t, &doc, "inspect", src); status != exitDone {
		t.Fatalf("exit status %d", status)
	}
	if doc.Convention != nil || doc.Quantized != 0 || doc.Parameters != 64*128+8*64 || len(doc.Weights) != 2 || len(doc.Problems) != 0 ||
		!slices.Equal(doc.Extra, []string{"consolidated.safetensors"}) || len(doc.Skipped) != 1 || doc.Skipped[0].Name != "pytorch_model.bin" {
		t.Errorf("%+v", doc)
	}
	if w := doc.Weights[0]; w.Name != "l.0.proj.weight" || w.Format != "bf16" || w.Bytes != 64*128*2 || w.File != "model.safetensors" ||
		!slices.Equal(w.Shape, []int64{64, 128}) {
		t.Errorf("%+v", w)
	}
	text := done(t, "inspect", src)
	for _, want := range []string{"src: 8704 parameters, 17.6 kB in 1 file, ", "not quantized",
		"not copied: consolidated.safetensors (not part of the checkpoint)", "not copied: pytorch_model.bin (PyTorch weights)"} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect prints\n%s\nwithout %q", text, want)
		}
	}

	done(t, "quantize", src, dst, "--format", "mxfp8")
	doc = conversion.InspectDocument{}
	document(t, &doc, "inspect", dst)
	if doc.Convention == nil || *doc.Convention != "compressed-tensors" || doc.Quantized != 1 || !slices.Equal(doc.Ignore, headIgnored) ||
		len(doc.Extra)+len(doc.Skipped)+len(doc.Problems) != 0 {
		t.Errorf("%+v", doc)
	}
	if w := doc.Weights[1]; w.Name != "l.0.proj.weight" || w.Format != "mxfp8" || w.Bytes != 64*128+64*4 {
		t.Errorf("%+v", w)
	}
	if text := done(t, "inspect", dst); !strings.Contains(text, "1 of 2 weights quantized (compressed-tensors MXFP8)") ||
		!strings.Contains(text, "8.25") {
		t.Errorf("inspect prints\n%s", text)
	}

	config, err := os.ReadFile(filepath.Join(dst, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dst, hf.ConfigName),
		[]byte(strings.NewReplacer(`"lm_head"`, `"l.0.proj"`, `"re:(.*[.])?lm_head`, `"re:none`).Replace(string(config))))
	doc = conversion.InspectDocument{}
	if status := document(t, &doc, "inspect", dst); status != exitDone || len(doc.Problems) != 2 {
		t.Errorf("with a wrong ignore list: exit status %d, %+v", status, doc)
	}
	text = done(t, "inspect", dst)
	for _, want := range []string{
		"problem: l.0.proj.weight: it is quantized, but the ignore list says that it is not",
		"problem: lm_head.weight: it is not quantized and not on the ignore list",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect prints\n%s\nwithout %q", text, want)
		}
	}
	status, _, stderr := execute("", "dequantize", dst, filepath.Join(dir, "back"))
	if status != exitDone || !strings.Contains(stderr, "in the source, l.0.proj.weight: ") || !strings.Contains(stderr,
		"the first of 2 problems") {
		t.Errorf("dequantize: exit status %d, %q", status, stderr)
	}
	status, stdout, stderr := execute("", "inspect", filepath.Join(dir, "nowhere"))
	fails(t, status, stdout, stderr, "nowhere", "no such file")
}
