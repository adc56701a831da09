package evaluation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tokenizer"
)

// writeModel writes a small byte-level model with random weights.
func writeModel(t *testing.T, seed uint64) string {
	t.Helper()
	c := decoder.Config{HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		MaxPositionEmbeddings: 64}
	m, err := decoder.New(c, decoder.Options{}, seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() { // so that layers matter
		if !strings.HasSuffix(p.Name, "norm.weight") {
			for i := range p.Value.Data {
				p.Value.Data[i] *= 5
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	return dir
}

// quantize writes a checkpoint in a format.
func quantize(t *testing.T, src, dst string, f quant.Format, calibration *convert.Calibration) {
	t.Helper()
	source, err := convert.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	q, err := profile.For(f).Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: q, Calibration: calibration})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

func writeText(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newEvaluation returns an evaluation of a random model on a text of 300 bytes.
func newEvaluation(t *testing.T) Evaluation {
	t.Helper()
	method, err := windows.LookupMethod("all")
	if err != nil {
		t.Fatal(err)
	}
	return Evaluation{Model: writeModel(t, 1), Text: writeText(t, strings.Repeat("Not all those who wander are lost\n", 9)), Method: method,
		Stderr: io.Discard}
}

func run(t *testing.T, e Evaluation) *Evaluated {
	t.Helper()
	r, err := e.Run(t.Context())
	if err == nil {
		err = r.WriteReceipts()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFormats compares formats on the fly with checkpoints that convert.Quantize writes.
func TestFormats(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Formats = true, []quant.Format{quant.NVFP4, quant.MXFP8}
	got := run(t, e).Document()
	alone := e
	alone.Formats, alone.Layers, alone.Context = nil, false, 64 // all positions, the default
	if d := run(t, alone).Document(); d.LossDocument != got.LossDocument || d.Scored != 4*63 || d.Windows != 4 || d.Tokens != 306 ||
		d.Context != 64 {
		t.Errorf("alone: %+v, with formats: %+v", d, got)
	}
	for i, f := range e.Formats {
		dst := filepath.Join(t.TempDir(), "low")
		quantize(t, e.Model, dst, f, nil)
		stored := e
		stored.Model, stored.Reference, stored.Formats = dst, e.Model, nil
		want, low := run(t, stored).Document(), got.Formats[i]
		// compressed-tensors stores the inverse of the global scale of NVFP4: its inverse may differ in
		// the last bit.
		if near := math.Abs(float64(want.KL.Mean/low.KL.Mean)-1) < 1e-3; !near || !f.Global && !reflect.DeepEqual(*want.DivergenceDocument,
			low.DivergenceDocument) {
			t.Errorf("%s on the fly: %+v, of a checkpoint: %+v", f, low.DivergenceDocument, want.DivergenceDocument)
		}
		if same := want.LossDocument == low.LossDocument && reflect.DeepEqual(want.Layers, low.Layers); !same && !f.Global {
			t.Errorf("%s on the fly: %+v %v, of a checkpoint: %+v %v", f, low.LossDocument, low.Layers, want.LossDocument, want.Layers)
		}
		if !(low.KL.Mean > 0) || len(low.Layers) != 2 || len(low.Layers[1].Linears) != 4 || !(low.Layers[1].Output > 0) {
			t.Errorf("%s: %+v", f, low)
		}
		info, err := os.Stat(filepath.Join(dst, "model.safetensors"))
		if err != nil || math.Abs(float64(info.Size())/float64(low.Size)-1) > 0.15 || int64(low.Size) > info.Size() {
			t.Errorf("%s: a size of %d bytes, the checkpoint has %d (%v)", f, low.Size, info.Size(), err)
		}
	}
	self := e
	self.Reference, self.Formats = e.Model, nil
	if d := run(t, self).Document(); d.KL.Max != 0 || d.SameTop != 1 || d.LnRatio != 0 || d.DeltaP.RMS != 0 {
		t.Errorf("a model against itself: %+v", d.DivergenceDocument)
	}
}

// TestLower compares a model whose head, keys and values are quantized with the original, for a model
// and for a format on the fly, in memory and streamed.
func TestLower(t *testing.T) {
	e := newEvaluation(t)
	e.Reference = e.Model
	divergence := func(e Evaluation, head, cache quant.Format) float64 {
		t.Helper()
		e.Head.Format, e.Cache = head, cache
		d := run(t, e).Document()
		if d.Head != head.Name || d.KVFormat != cache.Name {
			t.Errorf("the document has the formats %q and %q", d.Head, d.KVFormat)
		}
		if len(d.Formats) > 0 {
			return float64(d.Formats[0].KL.Mean)
		}
		return float64(d.KL.Mean)
	}
	for _, c := range []struct{ head, cache quant.Format }{{quant.MXFP4, quant.Format{}}, {quant.Format{}, quant.MXFP4},
		{quant.MXFP8, quant.MXFP8}} {
		want := divergence(e, c.head, c.cache)
		streamed := e
		streamed.Stream = filepath.Join(t.TempDir(), "stream")
		if got := divergence(streamed, c.head, c.cache); got != want || !(want > 0) {
			t.Errorf("head %s, cache %s: divergence %g, streamed %g", c.head, c.cache, want, got)
		}
		flying := e
		flying.Reference, flying.Formats = "", []quant.Format{quant.BF16} // the weights are in BF16
		if got := divergence(flying, c.head, c.cache); got != want {
			t.Errorf("head %s, cache %s: divergence %g, on the fly %g", c.head, c.cache, want, got)
		}
	}
}

// TestPrint checks the fields of both outputs.
func TestPrint(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Formats = true, []quant.Format{quant.MXFP4}
	r := run(t, e)
	var text, doc bytes.Buffer
	if err := errors.Join(r.Print(&text, false), r.Print(&doc, true)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"perplexity", "method all: 4 windows of 64 tokens, 252 scored", "mxfp4", "self_attn.qkv_proj",
		r.document.digest} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the text lacks %q:\n%s", part, &text)
		}
	}
	var fields map[string]any
	if err := json.Unmarshal(doc.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nll", "perplexity", "stderr", "bits_per_byte", "tokens", "scored", "windows", "sha256", "formats"} {
		if fields[name] == nil {
			t.Errorf("the document lacks %s: %s", name, &doc)
		}
	}
	e.Reference, e.Formats = e.Model, nil
	doc.Reset()
	text.Reset()
	r = run(t, e)
	if err := errors.Join(r.Print(&doc, true), r.Print(&text, false)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"kl": {`, `"median"`, `"p999"`, `"same_top"`, `"delta_p"`, `"ln_ratio"`, `"layers"`} {
		if !strings.Contains(doc.String(), name) {
			t.Errorf("the document lacks %s: %s", name, &doc)
		}
	}
	if !strings.Contains(text.String(), "same top token 100.00 ± 0.00 %") {
		t.Errorf("got\n%s", &text)
	}
}

func TestErrors(t *testing.T) {
	e := newEvaluation(t)
	for name, tc := range map[string]struct {
		change func(*Evaluation)
		want   string
	}{
		"no text": {func(e *Evaluation) { e.Text = "nowhere" }, "nowhere: no such file or directory"},
		"device": {func(e *Evaluation) { e.Text = os.DevNull }, "not a regular file: write the text to a file, which is read more " +
			"than once"},
		"empty text":  {func(e *Evaluation) { e.Text = writeText(t, "") }, "there is no text"},
		"short text":  {func(e *Evaluation) { e.Text = writeText(t, "Arise") }, "the text has 5 tokens, want at least 64"},
		"context":     {func(e *Evaluation) { e.Context = 65 }, "has 64 positions: use a shorter context"},
		"both":        {func(e *Evaluation) { e.Reference, e.Formats = e.Model, []quant.Format{quant.MXFP8} }, "exclude each other"},
		"activations": {func(e *Evaluation) { e.Activations = true }, "it has no quantized weights"},
		"no model":    {func(e *Evaluation) { e.Model = "nowhere" }, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := e
			tc.change(&changed)
			if _, err := changed.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Run(ctx); err == nil || err.Error() != "interrupted: nothing was measured" {
		t.Errorf("got %v", err)
	}
}

// TestCalibration writes a file, quantizes with it, and evaluates with the stored scales.
func TestCalibration(t *testing.T) {
	e := newEvaluation(t)
	c := Calibration{Evaluation: e, Out: filepath.Join(t.TempDir(), "amax.json"), Cache: true}
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	amaxes, err := convert.ReadCalibration(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	if q := amaxes.Input["model.layers.1.self_attn.q_proj"]; len(amaxes.Input) != 14 || len(amaxes.Key) != 2 || len(amaxes.Value) != 2 ||
		q != amaxes.Input["model.layers.1.self_attn.v_proj"] || !(q > 0) {
		t.Errorf("got %+v", amaxes)
	}
	dst := filepath.Join(t.TempDir(), "low")
	quantize(t, e.Model, dst, quant.NVFP4, amaxes)
	weights := e
	weights.Model, weights.Reference = dst, e.Model
	both := weights
	both.Activations = true
	if a, b := run(t, weights).Document().KL.Mean, run(t, both).Document().KL.Mean; !(b > a) {
		t.Errorf("divergence %g with quantized weights, %g with quantized activations too", a, b)
	}
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "exists: name another file") {
		t.Errorf("got %v", err)
	}
}

// TestReadText joins the files of a directory.
func TestReadText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b": "two", "a/z": "one", ".hidden": "no", ".git/x": "no"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := findText(dir)
	if err != nil || files.bytes != 8 {
		t.Errorf("got %+v (%v), want 8 bytes", files, err)
	}
	if d, err := files.read(5); err != nil || d.text != "one\n\n" {
		t.Errorf("the first 5 bytes: %q (%v)", d.text, err)
	}
	d, err := files.read(maxText)
	if want := "f1687a1c91e7dabb67da04e90073a106ff7ad470212e3c98986afd56472abef8"; err != nil || d.text != "one\n\ntwo" || d.digest != want {
		t.Errorf("got %q, %s (%v), want %s", d.text, d.digest, err, want)
	}
}

// TestVocabularies compares tokenizers.
func TestVocabularies(t *testing.T) {
	parse := func(change string) vocabulary {
		const file = `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
			"pre_tokenizer": {"type": "ByteLevel", "use_regex": true, "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
			"added_tokens": [{"id": 3, "content": "<s>", "special": true}]}`
		tok, err := tokenizer.Parse([]byte(strings.Replace(file, `"<s>", "special": true}]`, change, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return vocabulary{tok}
	}
	const plain = `"<s>", "special": true}]`
	same, other := parse(plain), parse(`"<x>", "special": true}]`)
	begun := parse(plain + `, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ` +
		`{}}], "special_tokens": {"<s>": {"ids": [3]}}}`)
	if err := same.check(begun); err == nil || err.Error() != "one begins a text with no token, the other with token 3" {
		t.Errorf("got %v", err)
	}
	if err := same.check(parse(plain)); err != nil {
		t.Error(err)
	}
	if err := same.check(other); err == nil || !strings.Contains(err.Error(), `token 3 is "<s>" in one and "<x>" in the other`) {
		t.Errorf("got %v", err)
	}
	if err := same.check(vocabulary{}); err == nil {
		t.Error("a tokenizer and bytes are the same")
	}
	if ids, err := same.encode("ab<s>", false); err != nil || !reflect.DeepEqual(ids, []int32{2, 3}) {
		t.Errorf("got %v, %v", ids, err)
	}
	for _, v := range []vocabulary{same, {}} {
		for _, text := range []string{"a\xff", "a\x00"} {
			if _, err := v.encode(text, false); err == nil {
				t.Errorf("%q is no error", text)
			}
		}
	}
	if ids, err := (vocabulary{}).encode("aé", false); err != nil || !reflect.DeepEqual(ids, []int32{97, 0xc3, 0xa9}) {
		t.Errorf("got %v, %v", ids, err)
	}
}

// TestReport writes a page, replaces it, and replaces no other file.
func TestReport(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Formats = true, []quant.Format{quant.MXFP4, quant.NVFP4}
	r := run(t, e)
	path := filepath.Join(t.TempDir(), "report.html")
	for range 2 {
		if err := r.WriteReport(path, "microscale eval"); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"mxfp4", "nvfp4", r.document.digest, "mlp.down_proj, dB", "<svg"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	other := writeText(t, "mine")
	if err := r.WriteReport(other, ""); err == nil || !strings.Contains(err.Error(), "is not a report") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "mine" {
		t.Errorf("the file holds %q (%v)", text, err)
	}
	if err := r.WriteReport(filepath.Join(path, "x"), ""); err == nil {
		t.Error("a report below a file is no error")
	}
}

// TestFormatsMemory checks that formats that do not fit in memory together are an error.
func TestFormatsMemory(t *testing.T) {
	n := decoder.Size{Linear: [][2]int{{1024, 1024}, {512, 1024}}, Other: 1 << 30}
	formats := []quant.Format{quant.MXFP8, quant.BF16}
	const need = 3 << 19 / 32 * (33 + 64)
	if err := checkFormats(n, formats, need); err != nil {
		t.Error(err)
	}
	if err := checkFormats(n, formats, need-1); !errors.Is(err, decoder.ErrMemory) || !strings.Contains(err.Error(),
		"in 2 formats: they take 4.5 MiB, but 4.5 MiB are available") {
		t.Errorf("got %v", err)
	}
}

// TestCalibrationErrors checks that the error names the first of several modules with unusable amaxes.
func TestCalibrationErrors(t *testing.T) {
	c := Evaluated{}
	c.amaxes, c.stored = windows.NewAmaxes(), func(module string) string { return module }
	for i := range 8 {
		down := fmt.Sprintf("model.layers.%d.mlp.down_proj", i)
		c.linears = append(c.linears, []calibration.Linear{{Name: down, Modules: []string{down}}})
		c.amaxes.Input[down] = float64(min(1, 5-i))
		c.amaxes.Key[fmt.Sprintf("model.layers.%d.self_attn", i)] = math.NaN()
	}
	for range 10 { // maps have no order
		if _, err := c.calibration(true); err == nil || !strings.Contains(err.Error(),
			"the amax of the input of model.layers.5.mlp.down_proj is 0, want") {
			t.Errorf("got %v", err)
		}
	}
}
