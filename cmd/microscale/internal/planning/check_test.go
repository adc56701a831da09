package planning

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// printed returns what print writes, and checks that its lines fit 100 columns.
func printed(t *testing.T, print func(b *bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := print(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 && !strings.Contains(line, "http") {
			t.Errorf("%d columns, want at most 100: %s", n, line)
		}
	}
	return b.String()
}

// document returns v after a round trip through JSON.
func document(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// words joins the words of a text by single spaces, since output is wrapped.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func find(t *testing.T, name string) *device.Device {
	t.Helper()
	d, err := device.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDevices: the table and the document have each device, with its rates or none.
func TestDevices(t *testing.T) {
	text := printed(t, func(b *bytes.Buffer) error { return PrintDevices(b) })
	list := document(t, DevicesDocument(nil))["devices"].([]any)
	if len(list) != len(device.All()) {
		t.Fatalf("the document has %d devices, want %d", len(list), len(device.All()))
	}
	for i, d := range device.All() {
		if !strings.Contains(text, "\n"+d.Name+" ") {
			t.Errorf("the table lacks %s", d.Name)
		}
		doc := list[i].(map[string]any)
		figures := doc["figures"].(map[string]any)
		for _, r := range rates(d) {
			f := figures[r.name].(map[string]any)
			switch {
			case r.Known() && (f["value"] != r.Value/1e12 || f["source"] != r.Source.Ref):
				t.Errorf("%s %s: got %v, want %v of %s", d.Name, r.name, f, r.Value/1e12, r.Source.Ref)
			case !r.Known() && (f["value"] != nil || f["source"] != nil):
				t.Errorf("%s %s: got %v, want null", d.Name, r.name, f)
			}
		}
		one := document(t, DevicesDocument(d))["devices"].([]any)
		if len(one) != 1 || one[0].(map[string]any)["name"] != d.Name {
			t.Errorf("the document of %s has %v", d.Name, one)
		}
		modes := words(printed(t, func(b *bytes.Buffer) error { return PrintModes(b, d) }))
		for _, m := range d.Arch.Modes {
			for _, want := range []string{m.Library + ", " + strings.Join(modeScalings(m), " or "), m.Source.Title, m.Condition} {
				if !strings.Contains(modes, words(want)) {
					t.Errorf("%s: the modes lack %q", d.Name, want)
				}
			}
		}
	}
}

// TestAnswers: text and document agree with the answer of package device.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		device  string
		format  quant.Format
		m, n, k int
		forward bool
		want    []string // in the text
	}{
		{"h100", quant.FP8Tensor, 4096, 4096, 4096, false, []string{"runs yes", "TN", "Rowwise and columnwise copies", "Sources"}},
		{"h100", quant.MXFP8, 64, 64, 64, false, []string{"runs no", "Problems", "Hopper sm_90 has no unit for mxfp8"}},
		{"b200", quant.MXFP8, 8192, 4096, 14336, false, []string{"runs yes", "none"}},
		{"b200", quant.NVFP4, 16, 64, 64, true, []string{"runs yes"}},
		{"b200", quant.MXFP8, 8192, 4095, 14336, false, []string{"runs no"}},
	} {
		a, err := device.Check(device.Request{Device: find(t, tc.device), Input: tc.format, Weight: tc.format, Grad: tc.format, M: tc.m, N: tc.n,
			K: tc.k, Forward: tc.forward})
		if err != nil {
			t.Fatal(err)
		}
		text := words(printed(t, func(b *bytes.Buffer) error { return PrintAnswer(b, a) }))
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s: the text lacks %q:\n%s", tc.device, tc.format, want, text)
			}
		}
		doc := document(t, AnswerDocument(a))
		products := doc["products"].([]any)
		if doc["runs"] != a.OK || doc["device"] != a.Device.Name || len(products) != len(a.Products) ||
			len(doc["libraries"].([]any)) != len(a.Libraries) {
			t.Errorf("%s %s: got document %v", tc.device, tc.format, doc)
		}
		for i, p := range a.Products {
			d := products[i].(map[string]any)
			if len(d["problems"].([]any)) != len(p.Problems) || (d["library"] == nil) != (p.Mode == nil) || d["sum"] != float64(p.Sum) ||
				len(d["operands"].([]any)) != 2 {
				t.Errorf("%s %s %s: got %v", tc.device, tc.format, p.Name, d)
			}
			for _, problem := range p.Problems {
				if !strings.Contains(text, words(problem.String())) || !strings.Contains(text, words(problem.Source.Title)) {
					t.Errorf("%s %s %s: the text lacks the problem %q or its source", tc.device, tc.format, p.Name, problem)
				}
			}
		}
		options := 0
		for _, c := range a.Copies {
			options += len(c.Options)
		}
		if got := len(doc["copies"].([]any)); got != options {
			t.Errorf("%s %s: got %d ways to copy, want %d", tc.device, tc.format, got, options)
		}
	}
}
