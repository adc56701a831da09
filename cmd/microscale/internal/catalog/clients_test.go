package catalog

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/microscale-go/microscale/quant"
)

// TestHardware checks which generations multiply a format, and that 128×128 weights are taken
// with inputs in vectors of 128.
func TestHardware(t *testing.T) {
	for _, tc := range []struct {
		format quant.Format
		want   string
	}{
		{quant.NVFP4, "Blackwell, Blackwell Ultra, RTX Blackwell"},
		{quant.FP8Block, "Hopper"},
		{quant.FP8Row, "Hopper, CDNA4"},
		{quant.MXINT8, "-"},
	} {
		if got := hardwareText(tc.format); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.format, got, tc.want)
		}
	}
}

// TestClientsWidth: the table fits a terminal of 100 columns, and has each pair of the Markdown table.
func TestClientsWidth(t *testing.T) {
	var plain, markdown strings.Builder
	for b, asMarkdown := range map[*strings.Builder]bool{&plain: false, &markdown: true} {
		if err := PrintClients(b, asMarkdown); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(plain.String()) {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns, want at most 100: %s", n, line)
		}
	}
	for line := range strings.Lines(markdown.String()) {
		for _, cell := range strings.Split(line, "|")[2:] {
			if cell = strings.TrimSpace(cell); strings.Contains(cell, " ") && !strings.HasPrefix(cell, "cuBLASLt") &&
				!strings.Contains(plain.String(), cell) {
				t.Errorf("the table lacks %q", cell)
			}
		}
	}
}
