package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
)

// TestLeft checks that quantize and dequantize report the files that they do not copy,
// on standard error and in JSON.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	litter := func(path string) {
		weightsFile(t, filepath.Join(path, "consolidated.safetensors"), twoWeights()...)
		writeFile(t, filepath.Join(path, "pytorch_model.bin"), []byte("weights"))
		if err := os.Symlink("nowhere", filepath.Join(path, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
	}
	directory(t, src, twoWeights()...)
	litter(src)
	check := func(args ...string) {
		t.Helper()
		_, _, stderr := execute("", args...)
		for _, want := range []string{"not copied: consolidated.safetensors (not part of the checkpoint)\n",
			"not copied: pytorch_model.bin (PyTorch weights)\n", "not copied: tokenizer.json ("} {
			if strings.Count(stderr, want) != 1 {
				t.Errorf("%q: standard error is %q, want %q in it once", args, stderr, want)
			}
		}
		var doc conversion.Document
		document(t, &doc, append(args, "--force")...)
		if !slices.Equal(doc.Extra, []string{"consolidated.safetensors"}) || len(doc.Skipped) != 2 ||
			doc.Skipped[0].Name != "pytorch_model.bin" || doc.Skipped[1].Name != "tokenizer.json" {
			t.Errorf("%q: the document has %q and %q", args, doc.Extra, doc.Skipped)
		}
	}
	check("quantize", src, dst, "--format", "mxfp8", "--dry-run")
	check("quantize", src, dst, "--format", "mxfp8")
	litter(dst)
	check("dequantize", dst, filepath.Join(dir, "back"))
}

// TestWarnNonFinite checks the warning about values that the result cannot hold, with
// their number and the names of a few weights. The result is written.
func TestWarnNonFinite(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src.safetensors")
	const elements = 32 * 32
	var names, entries []string
	for i := range 5 {
		names = append(names, "l."+string(rune('a'+i))+".proj.weight")
		begin := 4 * elements * i
		entries = append(entries, `"`+names[i]+`":{"dtype":"F32","shape":[32,32],"data_offsets":[`+strconv.Itoa(begin)+`,`+
			strconv.Itoa(begin+4*elements)+`]}`)
	}
	data := container("{"+strings.Join(entries, ",")+"}", 0)
	for i := range 5 * elements {
		v := float32(0.5)
		if i%elements == 7 {
			v = 1e30
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	writeFile(t, src, data)
	dst, back := filepath.Join(dir, "dst.safetensors"), filepath.Join(dir, "back.safetensors")
	if status, _, stderr := execute("", "quantize", src, dst, "--format", "mxfp8"); status != exitDone || stderr != "" {
		t.Fatalf("exit status %d, %q", status, stderr)
	}
	huge := filepath.Join(dir, "huge.safetensors")
	// ±MaxFloat32
	writeFile(t, huge, append(container(`{"l.0.weight":{"dtype":"F32","shape":[1,32],"data_offsets":[0,128]}}`, 120),
		"\xff\xff\x7f\x7f\xff\xff\x7f\xff"...))
	for _, flags := range [][]string{nil, {"--json"}} {
		args := append([]string{"quantize", huge, dst, "--format", "mxfp8", "--force"}, flags...)
		if status, _, stderr := execute("", args...); status != exitDone || stderr != "microscale: warning: 2 values of l.0.weight are "+
			"beyond mxfp8 and decode to Inf\n" {
			t.Errorf("%q: exit status %d, %q", args, status, stderr)
		}
	}
	done(t, "quantize", src, dst, "--format", "mxfp8", "--force")
	status, stdout, stderr := execute("", "dequantize", dst, back, "--dtype", "fp16")
	want := ""
	for _, name := range names[:3] {
		want += "microscale: warning: 1 value of " + name + " is beyond f16 and decodes to Inf\n"
	}
	want += "microscale: warning: values of 2 more weights are beyond f16 and decode to Inf\n"
	if status != exitDone || stderr != want || strings.Contains(stdout, "warning") {
		t.Errorf("exit status %d, standard error\n%s\nwant\n%s", status, stderr, want)
	}
	if status, _, _ := execute("", "verify", dst, back); status != exitFailed {
		t.Errorf("verify ends with %d, want %d", status, exitFailed)
	}
}

// TestSourceNonFinite checks that a weight that holds NaN is not an exact copy, and that
// verify reports it and quantize warns of it.
func TestSourceNonFinite(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, weight{"l.0.proj.weight", []int64{64, 128}, nil}, weight{"lm_head.weight", []int64{8, 64},
		map[int]uint16{7: bf16Inf, 8: bf16NaN}})
	line := "2 values of lm_head.weight are NaN or Inf in " + src + "\n"
	for _, tc := range []struct {
		line    string
		printed bool // it is a result of the command, not a warning
	}{{"quantize SRC DST --format mxfp8 --allow-nonfinite", false}, {"verify SRC DST", true}} {
		status, stdout, stderr := execute("", strings.Fields(strings.NewReplacer("SRC", src, "DST", dst).Replace(tc.line))...)
		found := stderr == "microscale: warning: "+line && !strings.Contains(stdout, line)
		if tc.printed {
			found = strings.HasSuffix(stdout, "\n"+line) && stderr == ""
		}
		if status != exitDone || strings.Contains(stdout, "exact") || !found || !strings.Contains(stdout, "lm_head.weight  ") {
			t.Errorf("%s: status %d\n%s%s", tc.line, status, stdout, stderr)
		}
	}
}

// TestAllExact checks the text that replaces an empty table.
func TestAllExact(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, twoWeights()...)
	if text := done(t, "verify", src, src); !strings.HasPrefix(text, "all 2 weights are exact copies\n\n") || !strings.Contains(text,
		"2 weights not quantized: identical to the bit") {
		t.Errorf("verify prints\n%s", text)
	}
	if text := done(t, "inspect", "sample:"); !strings.Contains(text, "\nsample: 9.74 M parameters, ") {
		t.Errorf("inspect prints\n%s", text)
	}
}

// TestPadded checks that inspect marks weights with padding.
func TestPadded(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	weightsFile(t, src, weight{"a.weight", []int64{7, 100}, nil}, weight{"b.weight", []int64{7, 128}, nil})
	done(t, "quantize", src, dst, "--format", "mxint8")
	lines := strings.Split(done(t, "inspect", dst, "--each"), "\n")
	if !strings.HasPrefix(lines[2], "a.weight") || !strings.HasSuffix(lines[2], "10.56  padded") || !strings.HasPrefix(lines[3], "b.weight") ||
		!strings.HasSuffix(lines[3], "  8.25") {
		t.Errorf("inspect prints\n%s", strings.Join(lines, "\n"))
	}
}

// TestControlCharacters checks that names with terminal controls are quoted.
func TestControlCharacters(t *testing.T) {
	dir := t.TempDir()
	src, dst, wrong := filepath.Join(dir, "a\x1b[31m"), filepath.Join(dir, "b\r"), filepath.Join(dir, "c")
	name := "l.0.\x1b]0;title\a.weight"
	directory(t, src, weight{name, []int64{32, 64}, map[int]uint16{0: bf16NaN}})
	weightsFile(t, filepath.Join(src, "more\x1b.safetensors"), twoWeights()...)
	writeFile(t, filepath.Join(src, "x\u009b.bin"), nil)
	for _, args := range [][]string{
		{"inspect", src}, {"inspect", src, "--each"}, {"quantize", src, dst, "--format", "mxfp8", "--allow-nonfinite", "--dry-run"},
		{"quantize", src, dst, "--format", "mxfp8"}, {"quantize", src, dst, "--format", "mxfp8", "--allow-nonfinite"},
		{"inspect", dst}, {"verify", src, dst}, {"dequantize", dst, wrong}, {"verify", wrong, src}, {"verify", wrong, dst + "\n"},
	} {
		_, stdout, stderr := execute("", args...)
		for _, line := range strings.Split(stdout+stderr, "\n") {
			if show.Escaped(line) != line {
				t.Errorf("%q prints %q", args, line)
			}
		}
	}
	config, err := os.ReadFile(filepath.Join(dst, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dst, hf.ConfigName), []byte(strings.Replace(string(config), `"ignore": []`, `"ignore": ["re:.*"]`, 1)))
	if _, stdout, stderr := execute("", "verify", src, dst); show.Escaped(strings.ReplaceAll(stdout+stderr, "\n", "")) != strings.ReplaceAll(
		stdout+stderr, "\n", "") || !strings.Contains(stdout, `\x1b]0;title\a`) {
		t.Errorf("verify prints %q, %q", stdout, stderr)
	}
	for text, want := range map[string]string{"a b·é": "a b·é", "\x00": `\x00`, "\xff": `\xff`, "\u202e": `\u202e`, "a'\n": `a'\n`} {
		if got := show.Escaped(text); got != want {
			t.Errorf("%q is escaped to %q, want %q", text, got, want)
		}
	}
}
