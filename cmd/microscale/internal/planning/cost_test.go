package planning

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/recipe"
)

func estimate(t *testing.T, name, on string) *cost.Estimate {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	e, err := cost.New(cost.Config{Params: 8e9, Recipe: r, Device: find(t, on), Tokens: 8192, Width: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestEstimate: every figure is printed in its unit, formulas only on request, and unknown values are
// null in the document.
func TestEstimate(t *testing.T) {
	e := estimate(t, "mxfp8", "b200")
	e.Sections[0].Figures[0].Value = math.NaN()
	plain := printed(t, func(b *bytes.Buffer) error { return PrintEstimate(b, e, false, false) })
	explained := words(printed(t, func(b *bytes.Buffer) error { return PrintEstimate(b, e, true, false) }))
	doc := document(t, estimateDocument(e))
	if doc["recipe"] != "mxfp8" || doc["device"] != "b200" || doc["parameters"] != 8e9 {
		t.Errorf("got document %v", doc)
	}
	for i, s := range e.Sections {
		section := doc["sections"].([]any)[i].(map[string]any)
		if section["title"] != s.Title || len(section["figures"].([]any)) != len(s.Figures) {
			t.Errorf("%s: got %v", s.Title, section)
		}
		for k, f := range s.Figures {
			if !strings.Contains(plain, f.Name) || !strings.Contains(words(plain), words(f.Name+" "+valueText(f))) {
				t.Errorf("the text lacks %s %s", f.Name, valueText(f))
			}
			if !strings.Contains(explained, words(f.Formula)) {
				t.Errorf("--explain lacks the formula %q", f.Formula)
			}
			if strings.Contains(f.Formula, " ") && strings.Contains(words(plain), words(f.Formula)) {
				t.Errorf("the text has the formula %q without --explain", f.Formula)
			}
			got := section["figures"].([]any)[k].(map[string]any)
			if want := f.Value; got["value"] != want && !(math.IsNaN(want) && got["value"] == nil) {
				t.Errorf("%s: got %v in the document, want %v", f.Name, got["value"], want)
			}
		}
	}
	if first := e.Sections[0].Figures[0]; valueText(first) != "unknown" {
		t.Errorf("%s: got %s, want unknown", first.Name, valueText(first))
	}
	empty := estimate(t, "bf16", "b200")
	last := empty.Sections[len(empty.Sections)-1]
	if text := printed(t, func(b *bytes.Buffer) error { return PrintEstimate(b, empty, false, false) }); len(last.Figures) > 0 ||
		strings.Contains(text, last.Title) {
		t.Errorf("the text has the section %q without figures", last.Title)
	}
	reason := words(printed(t, func(b *bytes.Buffer) error { return PrintEstimate(b, estimate(t, "mxfp8", "h100"), false, false) }))
	if !strings.Contains(reason, "does not run: Hopper sm_90 has no unit for mxfp8") {
		t.Errorf("the text of a device without units lacks the reason:\n%s", reason)
	}
}

func TestValueText(t *testing.T) {
	for _, tc := range []struct {
		f    cost.Figure
		want string
	}{
		{cost.Figure{Value: 8.25e9, Unit: "B"}, "8.25 GB"},
		{cost.Figure{Value: 0.25, Unit: "s"}, "250 ms"},
		{cost.Figure{Value: 1.5}, "1.5"},
		{cost.Figure{Value: 12345.6, Unit: "FLOP/B"}, "1.235e+04 FLOP/B"},
		{cost.Figure{Value: math.NaN(), Unit: "s"}, "unknown"},
	} {
		if got := valueText(tc.f); got != tc.want {
			t.Errorf("%v %s: got %s, want %s", tc.f.Value, tc.f.Unit, got, tc.want)
		}
	}
}

// TestTables: the documents' tables have the same cells as text and as a document.
func TestTables(t *testing.T) {
	tables := cost.Tables()
	var b bytes.Buffer
	if err := PrintTables(&b, tables, false); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if !strings.Contains(b.String(), table.Title) {
			t.Errorf("the text lacks the table %s", table.Title)
		}
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: got a row of %d cells, want %d", table.Title, len(row), len(table.Columns))
			}
			if !strings.Contains(words(b.String()), words(strings.Join(row, " "))) {
				t.Errorf("%s: the text lacks the row %v", table.Title, row)
			}
		}
	}
}

// TestEstimateChart: the chart is well-formed and has a line for each format with a known rate. A device
// without rates is an error.
func TestEstimateChart(t *testing.T) {
	if picture, err := EstimateChart(estimate(t, "mxfp8", "rtx-pro-6000")); err == nil {
		t.Errorf("a device without rates: got %s, want an error", picture)
	}
	e := estimate(t, "mxfp8", "b200")
	d := e.Device
	picture, err := EstimateChart(e)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	formats, _ := cost.Speedups(d, nil)
	if len(formats) < 2 {
		t.Fatalf("got %d formats on %s", len(formats), d)
	}
	for _, f := range formats {
		if !bytes.Contains(picture, []byte(f.Name)) {
			t.Errorf("the chart lacks %s", f.Name)
		}
	}
}
