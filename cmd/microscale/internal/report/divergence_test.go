package report

import (
	"strings"
	"testing"
)

// TestDivergence checks the page: its tables, a chart for the output and for every linear layer, and
// an error of zero, which has no logarithm.
func TestDivergence(t *testing.T) {
	d := &Divergence{
		Title: "T <b>", Subtitle: "S",
		Results: Table{Columns: []Column{{"format", "", "", false}, {"KL", "", "", true}}, Rows: [][]string{{"mxfp8", "0.01"}}},
		Models: []Diverging{
			{"mxfp8", []LayerError{{1e-3, []LinearError{{"q", 2e-4}, {"down", 3e-4}}}, {2e-3, []LinearError{{"q", 0}}}}},
			{"nvfp4", []LayerError{{1e-2, []LinearError{{"q", 2e-3}, {"down", 3e-3}}}, {2e-2, []LinearError{{"q", 4e-3}}}}},
		},
		How: []Fact{{"command", "microscale eval", true}},
	}
	page, err := d.HTML()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, part := range []string{
		Generator, "<td class=\"number\">0.01</td>", "T &lt;b&gt;", "Output of each layer, dB", "q, dB", "down, dB",
		"<td class=\"number\">2.00e-03</td>", "<td class=\"number\">–</td>", "<td class=\"number\">0.00e&#43;00</td>", "microscale eval",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if strings.Contains(text, ">0.5<") || strings.Contains(text, ">0.2<") {
		t.Error("the axis of layers has ticks between them")
	}
	if n := strings.Count(text, "<svg"); n != 3 {
		t.Errorf("the page has %d charts, want 3", n)
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("the page has numbers that are not finite")
	}
	d.Models = nil
	if page, err = d.HTML(); err != nil || strings.Contains(string(page), "<svg") || strings.Contains(string(page), `id="linears"`) {
		t.Errorf("a page without layers has charts (%v)", err)
	}
}
