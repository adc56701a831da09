package numbers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/mma"
)

// TestRounded: --explain reports each number that its type does not represent, once.
func TestRounded(t *testing.T) {
	model, err := mma.Lookup("blackwell-mxf8f6f4")
	if err != nil {
		t.Fatal(err)
	}
	e4m3, err := mma.LookupType("e4m3")
	if err != nil {
		t.Fatal(err)
	}
	u, k, err := Unit(model, mma.Options{A: e4m3}, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		products []string
		c        string
		scales   []string
		want     string
	}{
		{[]string{"1:-448", "0x1p-9:0x38", "nan:1"}, "0.5", []string{"0.5", "0x1p-127"}, ""},
		{[]string{"0.3:1", "0.3:-0.3:2"}, "0.1", []string{"3"}, "0.3 → 0.3125 in e4m3; -0.3 → -0.3125 in e4m3; 0.1 → 0x1.99999ap-04 in f32; " +
			"3 → 4 in ue8m0"},
	} {
		d, err := ParseCase(u, k, tc.products, tc.c, tc.scales, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d.rounded, "; "); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.products, got, tc.want)
		}
		var text, raw bytes.Buffer
		if err := d.Explain(&text, u, false); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "rounded  ") != (tc.want != "") {
			t.Errorf("%v: got %s", tc.products, text.String())
		}
		if err := d.Explain(&raw, u, true); err != nil {
			t.Fatal(err)
		}
		var doc struct{ Rounded []string }
		if err := json.Unmarshal(raw.Bytes(), &doc); err != nil || doc.Rounded == nil || strings.Join(doc.Rounded, "; ") != tc.want {
			t.Errorf("%v: got %v and %v in the document", tc.products, doc.Rounded, err)
		}
	}
}
