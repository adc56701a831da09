package show

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestPrintList: a list that is written element by element has the bytes of the whole document.
func TestPrintList(t *testing.T) {
	type row struct {
		Name  string  `json:"name"`
		Shape []int64 `json:"shape"`
	}
	type document struct {
		Source string         `json:"source"`
		Map    map[string]int `json:"map"`
		Rows   []row          `json:"rows"`
	}
	for _, rows := range [][]row{{}, {{"a", nil}}, {{"<\u202e>\x01", []int64{1, 2}}, {"b", []int64{}}, {"", []int64{3}}}} {
		var want, got strings.Builder
		doc := document{Source: "\u0085", Map: map[string]int{"x": 1}, Rows: rows}
		if err := PrintJSON(&want, doc); err != nil {
			t.Fatal(err)
		}
		doc.Rows = []row{}
		if err := PrintList(&got, doc, slices.Values(rows)); err != nil || got.String() != want.String() {
			t.Errorf("%v: got\n%s\nwant\n%s", err, got.String(), want.String())
		}
	}
	failure := errors.New("full")
	if err := PrintList(failing{failure}, document{Rows: []row{}}, slices.Values([]row{{"a", nil}})); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error of the writer", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
