package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestNotes: inspect and verify print the tensors that one layer lacks and the others have.
func TestNotes(t *testing.T) {
	var specs []safetensors.Spec
	for _, name := range []string{"model.embed_tokens", "model.norm", "model.layers.0.attn.q", "model.layers.0.attn.k",
		"model.layers.1.attn.q",
		"model.layers.2.attn.q", "model.layers.2.attn.k"} {
		specs = append(specs, safetensors.Spec{Name: name + ".weight", Dtype: safetensors.BF16, Shape: []int64{1}})
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		safetensors.ShardName(1, 1): append(layout.HeaderBytes(), make([]byte, 2*len(specs))...),
		hf.ConfigName:               []byte(`{"model_type": "made", "num_hidden_layers": 3}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	report, err := verify.Compare(t.Context(), source, source, verify.Options{})
	if err != nil || !report.OK() {
		t.Fatalf("%v: %v", err, report.Problems)
	}
	const want = "model.layers.1 has no attn.k.weight, which 2 other layers have: if it is not so in the original, fetch it again"
	for name, print := range map[string]func(out *bytes.Buffer, asJSON bool) error{
		"inspect": func(out *bytes.Buffer, asJSON bool) error {
			return PrintInspection(out, dir, checkpoint.Read(source), false, asJSON)
		},
		"verify": func(out *bytes.Buffer, asJSON bool) error {
			return PrintVerification(out, dir, dir, report, 0, false, asJSON)
		},
	} {
		var text, document bytes.Buffer
		if err := print(&text, false); err != nil || !strings.Contains(text.String(), "\nnote: "+want+"\n") {
			t.Errorf("%s: %v: %s", name, err, text.String())
		}
		var doc struct{ Notes []string }
		if err := print(&document, true); err != nil || json.Unmarshal(document.Bytes(), &doc) != nil || fmt.Sprint(doc.Notes) != "["+want+"]" {
			t.Errorf("%s: %v: notes %q", name, err, doc.Notes)
		}
	}
}

// TestUnboundedText: a checkpoint whose types have no bound is not called equal to its source.
func TestUnboundedText(t *testing.T) {
	report := &verify.Report{Tensors: make([]verify.Tensor, 1), Checks: []verify.Check{verify.Unbounded}}
	var text bytes.Buffer
	if err := PrintVerification(&text, "src", "dst", report, 1, false, false); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); strings.Contains(got, "matches") || strings.Contains(got, "within the bound") ||
		!strings.Contains(got, "dst is like src as far as it can be compared, in ") ||
		!strings.Contains(got, "  1 weight without a bound of an element") {
		t.Errorf("text is %s", got)
	}
}
