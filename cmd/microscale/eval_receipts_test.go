package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
)

// TestReceiptErrors: no two results of one run are written to one file, however it is spelled.
func TestReceiptErrors(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return dir + string(filepath.Separator) + name }
	for _, tc := range []struct {
		receipts []string
		base     string
		fails    bool
	}{
		{[]string{at("a"), at("b")}, at("c"), false},
		{[]string{at("a"), at("a")}, "", true},
		{[]string{at("a"), at("./a")}, "", true},
		{[]string{at("a"), at("b")}, at("./b"), true},
	} {
		err := errors.Join(receiptErrors(&evaluation.Evaluation{Receipts: tc.receipts, Base: tc.base}, "")...)
		if (err != nil) != tc.fails || tc.fails && !strings.Contains(err.Error(), "two results") {
			t.Errorf("%q and %q: %v", tc.receipts, tc.base, err)
		}
	}
}
