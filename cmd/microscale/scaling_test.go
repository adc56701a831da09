package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScaling compares the tables and the chart of docs/scaling.md with what cost prints.
func TestScaling(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "scaling.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, recipe := range []string{"mxfp8", "nvfp4"} {
		for _, ranks := range []int{8, 64, 512, 4096} {
			status, stdout, stderr := execute("", strings.Fields(fmt.Sprintf("cost --params 8e9 --recipe %s --device b200 --ranks %d --json", recipe,
				ranks))...)
			if status != exitDone {
				t.Fatal(stderr)
			}
			d := parsed[struct {
				Sections []struct {
					Figures []struct{ Value float64 }
				}
			}](t, stdout)
			figures := d.Sections[len(d.Sections)-1].Figures
			row := fmt.Sprintf("| %d |", ranks)
			for i := 0; i < len(figures); i += 3 {
				row += fmt.Sprintf(" %.1f GB, %.0f ms |", figures[i].Value/1e9, figures[i+1].Value*1e3)
			}
			if !strings.Contains(string(text), row+"\n") {
				t.Errorf("docs/scaling.md does not have, for %s, the row\n%s", recipe, row)
			}
		}
	}
	made := filepath.Join(t.TempDir(), "scaling.svg")
	if status, _, stderr := execute("", "cost", "--params", "8e9", "--recipe", "mxfp8", "--device", "b200", "--ranks", "1024", "--svg",
		made); status != exitDone {
		t.Fatal(stderr)
	}
	got, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(repository, "docs", "scaling.svg")
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		if !*update {
			t.Errorf("docs/scaling.svg is not what cost draws, %v: run go test ./cmd/microscale -run TestScaling -update", err)
		} else if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
