package lossless

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocument: docs/conversion.md has the rows of the table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/conversion.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, c := range Table() {
		fmt.Fprintf(&want, "| %s | %s | %s |\n", c.From, c.To, c.Condition)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/conversion.md has other rows: write\n%s", &want)
	}
}
