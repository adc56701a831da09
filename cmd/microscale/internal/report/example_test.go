package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
)

// Example computes a verdict, a table and a page for two runs.
func Example() {
	c := &report.Comparison{
		Title: "Two recipes", Baseline: "bf16", Token: "byte",
		Recipes: []report.Recipe{
			{Name: "bf16", Steps: 2, TrainLoss: 2.11, ValidationLoss: 2.2, Train: []report.Point{{Step: 1, Loss: 5.5}, {Step: 2, Loss: 2.11}}},
			{Name: "mxfp8", Steps: 2, TrainLoss: 2.12, ValidationLoss: 2.2022, Train: []report.Point{{Step: 1, Loss: 5.5}, {Step: 2, Loss: 2.12}}},
		},
	}
	fmt.Println(strings.ReplaceAll(strings.Join(c.Verdict()[:2], "\n"), " More", "\nMore"))
	for _, row := range c.Table().Rows {
		fmt.Println(row[:4])
	}
	page, err := c.HTML()
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	fmt.Println(os.WriteFile(filepath.Join(dir, "report.html"), page, 0o644))
	// Output:
	// After 2 steps, bf16 has a validation loss of 2.2000 nats per byte: a perplexity of 9.03.
	// The gap of mxfp8 is within the noise of 1 seed (less than 0.66%): it shows no difference from bf16.
	// More seeds (--seeds) show smaller ones.
	// [bf16 2.1100 2.2000 ]
	// [mxfp8 2.1200 2.2022 +0.10%]
	// <nil>
}
