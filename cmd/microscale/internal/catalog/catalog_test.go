package catalog

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
)

// TestPrintFormats checks that the text and the JSON list every format.
func TestPrintFormats(t *testing.T) {
	var text, markdown bytes.Buffer
	if err := PrintFormats(&text, false); err != nil {
		t.Fatal(err)
	}
	if err := PrintFormats(&markdown, true); err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(FormatsDocument())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, f.Name)
	}
	for _, f := range format.All() {
		names = append(names, f.Name)
	}
	for _, n := range names {
		if !strings.Contains(text.String(), "\n"+n+" ") || !strings.Contains(markdown.String(), "\n| "+n+" |") || !bytes.Contains(document,
			[]byte(`"name":"`+n+`"`)) {
			t.Errorf("%s is missing", n)
		}
	}
}

// TestPrintUnits checks that every model is in the table, and that one alone prints its
// rules.
func TestPrintUnits(t *testing.T) {
	var all bytes.Buffer
	if err := PrintUnits(&all, nil, false); err != nil {
		t.Fatal(err)
	}
	for _, m := range mma.Models() {
		var one bytes.Buffer
		if err := PrintUnits(&one, m, false); err != nil || !strings.Contains(one.String(), m.Name) || !strings.Contains(one.String(), "to ") {
			t.Errorf("%s: %v, %s", m.Name, err, one.String())
		}
		documents, err := json.Marshal(modelDocuments([]*mma.Model{m}))
		if n := strings.Count(string(documents), `"instructions":[`); err != nil || n != len(m.Units()) || n == 0 {
			t.Errorf("%s: the JSON has %d units of %d, %v", m.Name, n, len(m.Units()), err)
		}
		if scaled := strings.Contains(one.String(), "one for"); scaled != slices.ContainsFunc(m.Modes(),
			func(d mma.Mode) bool { return len(d.Scales) > 0 }) {
			t.Errorf("%s: scales are named: %v\n%s", m.Name, scaled, one.String())
		}
		if !strings.Contains(all.String(), "\n"+m.Name+" ") {
			t.Errorf("%s is not in the table", m.Name)
		}
	}
}
