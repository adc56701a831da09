package planning

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/layouts"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
)

// TestLayouts: the list and its document have every layout with its other names.
func TestLayouts(t *testing.T) {
	text := words(printed(t, func(b *bytes.Buffer) error { return PrintLayouts(b, false) }))
	var b bytes.Buffer
	if err := PrintLayouts(&b, true); err != nil {
		t.Fatal(err)
	}
	var doc struct{ Layouts []layoutDocument }
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Layouts) != len(layouts.Layouts()) {
		t.Fatalf("the document has %d layouts, want %d", len(doc.Layouts), len(layouts.Layouts()))
	}
	for i, l := range layouts.Layouts() {
		if !strings.Contains(text, words(l.Name+" "+l.Doc)) || !strings.Contains(text, strings.Join(l.Aliases, ", ")) {
			t.Errorf("the list lacks %s", l.Name)
		}
		if d := doc.Layouts[i]; d.Name != l.Name || d.Aliases == nil || len(d.Aliases) != len(l.Aliases) || d.Scales != l.Scales() {
			t.Errorf("%s: got document %+v", l.Name, d)
		}
	}
}

// TestReadBuffer: the largest layout bounds what is read.
func TestReadBuffer(t *testing.T) {
	b := layouts.Buffer{Format: quant.MXFP8, Rows: 2, Cols: 64}
	largest := 0
	for _, l := range layouts.Layouts() {
		if n, err := b.Size(l); err == nil {
			largest = max(largest, n)
		}
	}
	src, err := ReadBuffer(bytes.NewReader(make([]byte, largest)), b)
	if err != nil || len(src) != largest {
		t.Errorf("got %d bytes and %v, want %d", len(src), err, largest)
	}
	endless := endlessReader{}
	if _, err := ReadBuffer(endless, b); err == nil || !strings.HasPrefix(err.Error(), "standard input: got more than ") {
		t.Errorf("an endless input: got %v", err)
	}
}

// TestReadNoBuffer: a format without scales and a shape too large are errors before anything is read.
func TestReadNoBuffer(t *testing.T) {
	for want, b := range map[string]layouts.Buffer{
		"layout: bf16 has no scales: use a block format such as mxfp8":               {Format: quant.BF16, Rows: 1, Cols: 32},
		"layout: got 4294967296×4294967296, want a shape whose bytes can be counted": {Format: quant.MXFP8, Rows: 1 << 32, Cols: 1 << 32},
	} {
		r := strings.NewReader("some bytes")
		if _, err := ReadBuffer(r, b); err == nil || err.Error() != want || r.Len() != 10 {
			t.Errorf("got %v with %d bytes unread, want %s", err, r.Len(), want)
		}
	}
}

// TestFoundNaN: the layout of a buffer with a NaN scale is printed before the error.
func TestFoundNaN(t *testing.T) {
	var b bytes.Buffer
	err := PrintFound(&b, layouts.Buffer{Format: quant.MXFP8, Rows: 2, Cols: 64}, []byte{1, 2, 3, 255}, false)
	if err == nil || !strings.Contains(err.Error(), "the scale of row 1, block 1, of row-major is NaN") || !strings.Contains(b.String(),
		"row-major") {
		t.Errorf("got %v after %q", err, b.String())
	}
}

type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) { return len(b), nil }

// TestPrintFound: one possible layout is found, noise is uncertain, and a buffer of another size is an
// error in text and a document without possible layouts in JSON.
func TestPrintFound(t *testing.T) {
	const rows, blocks = 130, 5
	b := layouts.Buffer{Format: quant.MXFP8, Rows: rows, Cols: 32 * blocks}
	scales := make([]byte, rows*blocks)
	for i := range scales {
		scales[i] = byte(100 + i/blocks%40)
	}
	swizzled := make([]byte, layout.Swizzled.Size(rows, blocks))
	layout.Reorder(swizzled, layout.Swizzled, scales, layout.RowMajor, rows, blocks)
	for _, tc := range []struct {
		src      []byte
		verdict  string
		certain  bool
		possible int // at least
	}{
		{swizzled, "found: swizzled\n", true, 1},
		{bytes.Repeat([]byte{127}, rows*blocks), "found: row-major\n", true, 2}, // equal scales, in any order
		{swizzled[1:], "", false, 0},
	} {
		var text, raw bytes.Buffer
		err := PrintFound(&text, b, tc.src, false)
		if tc.verdict == "" && (err == nil || !strings.Contains(err.Error(), "are in no layout of 130×160 mxfp8")) || tc.verdict != "" &&
			!strings.HasPrefix(text.String(), tc.verdict) {
			t.Errorf("%d bytes: got %q and %v, want %q", len(tc.src), text.String(), err, tc.verdict)
		}
		if err := PrintFound(&raw, b, tc.src, true); err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Certain    bool
			Candidates []struct {
				Possible bool
				Why      string
			}
		}
		if err := json.Unmarshal(raw.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		possible := 0
		for _, c := range doc.Candidates {
			if c.Possible {
				possible++
			} else if c.Why == "" {
				t.Error("an impossible layout without a reason")
			}
		}
		if doc.Certain != tc.certain || possible < tc.possible || tc.possible == 0 && possible > 0 ||
			len(doc.Candidates) != len(layouts.Layouts()) {
			t.Errorf("%d bytes: got %s", len(tc.src), raw.String())
		}
	}
}
