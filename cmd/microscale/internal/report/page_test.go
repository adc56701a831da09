package report_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
)

func pageOf(t *testing.T, c *report.Comparison) string {
	t.Helper()
	b, err := c.HTML()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// charts returns the number of charts of a page.
func charts(page string) int { return strings.Count(page, "<svg ") }

func TestPage(t *testing.T) {
	page := pageOf(t, made(300))
	for _, id := range []string{"verdict", "recipes", "memory", "losses", "sqnr", "histograms", "formats", "how"} {
		if !strings.Contains(page, `<section id="`+id+`">`) {
			t.Errorf("got no section %s", id)
		}
	}
	// Memory; losses and gaps; amax and scales of 3 operands; formats.
	if got, want := charts(page), 1+4+2*3+1; got != want {
		t.Errorf("got %d charts, want %d", got, want)
	}
	if found := regexp.MustCompile(`(?i)<script|<link|<img|<image|<iframe|@import|url\(|\bsrc=|\bhref=|https?://`).FindAllString(
		regexp.MustCompile(`xmlns(:\w+)?="[^"]*"`).ReplaceAllString(page, ""), -1); found != nil {
		t.Errorf("got external references: %q", found)
	}
	if left := regexp.MustCompile(`#(0[1-4]|10)[0-9A-F]{2}00\b`).FindString(page); left != "" {
		t.Errorf("got the placeholder color %s in the page", left)
	}
	if pageOf(t, made(300)) != page {
		t.Error("pages of the same data differ")
	}
}

// TestEscaping checks that strings of the data are escaped in the page, its charts and their
// labels.
func TestEscaping(t *testing.T) {
	const evil = `<script>alert("1")</script>&amp;'`
	c := made(20)
	c.Title, c.Subtitle, c.Baseline, c.Token = evil, evil, evil, evil
	c.How[0].Text, c.How[1].Name = evil, evil
	for i := range c.Recipes {
		r := &c.Recipes[i]
		if i == 0 {
			r.Name = evil
		}
		r.Doc, r.Failed = evil, evil
		for j := range r.Operands {
			r.Operands[j].Module, r.Operands[j].Name = evil, evil
		}
	}
	for i := range c.Formats {
		c.Formats[i].Name = evil
	}
	page := pageOf(t, c)
	if charts(page) == 0 {
		t.Error("got no charts")
	}
	if strings.Contains(page, "<script") {
		t.Error("got a script from the data")
	}
}

// TestSparse checks that comparisons with missing or no data give a page without the
// corresponding charts.
func TestSparse(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name  string
		c     report.Comparison
		least int // charts
		most  int
	}{
		{"nothing", report.Comparison{}, 0, 0},
		{"no-steps", report.Comparison{Baseline: "a",
			Recipes: []report.Recipe{{Name: "a", TrainLoss: nan, ValidationLoss: nan, SecondsPerStep: nan}}}, 0, 0},
		{"one-step", report.Comparison{Baseline: "a", Recipes: []report.Recipe{{Name: "a", Train: []report.Point{{Step: 1, Loss: 5}},
			ValidationLoss: 5}}}, 1, 2},
		{"no-baseline", report.Comparison{Baseline: "b",
			Recipes: []report.Recipe{{Name: "a", Train: []report.Point{{Step: 1, Loss: 5}, {Step: 2, Loss: 4}}}},
			Formats: []report.Format{{Name: "f", Loss: 1}}}, 1, 1},
		{"not-finite", report.Comparison{Baseline: "a",
			Recipes: []report.Recipe{{Name: "a", ValidationLoss: inf, Train: []report.Point{{Step: 1, Loss: nan}, {Step: 2, Loss: inf}},
				Operands: []report.Operand{{Name: "input", SQNR: nan, Amax: inf}, {Name: "input", SQNR: inf, Amax: nan}}}},
			Formats: []report.Format{{Name: "f", Loss: nan}}}, 0, 0},
		{"one-operand", report.Comparison{Recipes: []report.Recipe{{Name: "a",
			Operands: []report.Operand{{Name: "input", Module: "m", SQNR: 30, Amax: 1}}}}}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if n := charts(pageOf(t, &tc.c)); n < tc.least || n > tc.most {
				t.Errorf("got %d charts, want %d to %d", n, tc.least, tc.most)
			}
		})
	}
}
