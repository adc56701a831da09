package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/report"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

var nan = math.NaN()

// quantize evaluates the model of the baseline in every format, activations as
// they are. It fails where it was interrupted.
func (k *comparison) quantize(ctx context.Context) error {
	if k.model == nil {
		return nil
	}
	c := &k.config
	base, err := recipe.Lookup(baselineRecipe)
	if err != nil {
		return err
	}
	fmt.Fprintf(k.stderr, "microscale: quantizing the model of %s to every format\n", baselineRecipe)
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		m, err := k.model.Quantize(quant.Quantizer{Format: f}, false, c.Threads)
		if err != nil {
			return err
		}
		loss, _, err := train.Evaluate(ctx, m, nn.Scope{Recipe: base, Threads: c.Threads}, c.Corpus.Validation, c.Sequence, c.ValidationTokens)
		if err != nil {
			return err
		}
		k.formats = append(k.formats, report.Format{Name: f.Name, Bits: f.BitsPerElement(), Loss: loss})
	}
	return nil
}

// reportName is the file that compare writes.
const reportName = "report.html"

// maxReport is the largest report in bytes that is read, to see whose it is. One has
// about 1 MB.
const maxReport = 64 << 20

// reportable reports what keeps a report from being written to a directory, before
// minutes of training rather than after them: anything there but an earlier report.
func reportable(dir string) error {
	entries, err := os.ReadDir(dir)
	place := dir // which there is: the directory, or where it would be made
	for errors.Is(err, fs.ErrNotExist) && place != filepath.Dir(place) {
		place = filepath.Dir(place)
		_, err = os.Stat(place)
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(place, ".report-*"); err == nil {
			probe.Close()
			err = os.Remove(probe.Name())
		}
	}
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	if err != nil {
		return fmt.Errorf("%s: not a directory to write a report to: %w: name another with --out", printable(dir), err)
	}
	for _, e := range entries {
		if e.Name() != reportName {
			return fmt.Errorf("%s: the directory has other files than a report, such as %s: name another with --out", printable(dir), printable(e.Name()))
		}
	}
	if len(entries) == 0 {
		return nil
	}
	text, err := bounded.ReadFile(filepath.Join(dir, reportName), maxReport)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(report.Generator)) {
		return fmt.Errorf("%s is not a report of microscale compare, and would be replaced: name another directory with --out", printable(filepath.Join(dir, reportName)))
	}
	return nil
}

// writeReport writes the page, in place of an earlier one once it is whole.
func writeReport(dir string, c *report.Comparison) (path string, err error) {
	page, err := c.HTML()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, reportName)
	made := missing(dir)
	defer func() {
		if err != nil {
			for _, folder := range made {
				_ = os.Remove(folder) // the error at hand says more
			}
		}
	}()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".report-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(page)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return path, nil
}

// missing returns the folders of a path that do not exist, the innermost first.
func missing(dir string) (folders []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return folders
		}
		folders = append(folders, dir)
		dir = filepath.Dir(dir)
	}
}

// end reports what was done; cause is why that is not all of it.
func (k *comparison) end(cmd *cobra.Command, dir string, asJSON bool, cause error) error {
	switch {
	case len(k.recipes) == 0:
		return interrupted(cause, "no recipe was done, and nothing was written")
	case len(k.recipes) == len(k.failed):
		return errors.New(strings.Join(k.failed, "; "))
	}
	c := k.report(cmd)
	path, unwritten := writeReport(dir, c)
	out := cmd.OutOrStdout()
	var err error
	if asJSON {
		err = printJSON(out, k.document(c, path))
	} else {
		err = printComparisonOfRecipes(out, c, path)
	}
	switch {
	case unwritten != nil:
		return fmt.Errorf("cannot write the report: %w", unwritten)
	case err != nil:
		return err
	case cause != nil:
		return interrupted(cause, fmt.Sprintf("the report has what was done until then: %s", strings.Join(names(k.recipes), ", ")))
	case len(k.failed) > 0:
		return errors.New(strings.Join(k.failed, "; "))
	case !slices.ContainsFunc(k.recipes, func(r report.Recipe) bool { return r.Failed == "" }):
		return fmt.Errorf("no recipe trained to the end, of %s: try a lower --learning-rate or a longer --warmup", strings.Join(names(k.recipes), ", "))
	}
	return nil
}

// typed has the signs of a terminal in place of a typesetter's, and a standard error
// on a line of its own.
var typed = strings.NewReplacer("−", "-", "–", "-", " ±", "\n±")

// printComparisonOfRecipes prints the table, and where the report is if there is one.
func printComparisonOfRecipes(w io.Writer, c *report.Comparison, path string) error {
	data := c.Table()
	var columns []column
	for _, c := range data.Columns {
		columns = append(columns, column{c.Short, c.Numeric})
	}
	t := newTable(columns...)
	for _, row := range data.Rows {
		var cells table.Row
		for _, cell := range row {
			cells = append(cells, typed.Replace(printable(cell)))
		}
		t.AppendRow(cells)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", t.Render())
	for _, r := range c.Recipes {
		if r.Failed != "" {
			fmt.Fprintf(&b, "%s did not finish: %s\n", printable(r.Name), r.Failed)
		}
	}
	fmt.Fprintf(&b, "%s\n", c.Subtitle)
	if path != "" {
		fmt.Fprintf(&b, "the report is in %s\n", printable(path))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comparisonDocument is a comparison as JSON.
type comparisonDocument struct {
	Recipes    []comparedDocument      `json:"recipes"`
	Formats    []comparedAfterDocument `json:"formats"` // of the baseline's model, quantized after training
	Steps      int                     `json:"steps"`
	Seed       uint64                  `json:"seed"`
	Data       []string                `json:"data"`
	Parameters int                     `json:"parameters"`
	Report     string                  `json:"report"`
}

type comparedDocument struct {
	Recipe          string               `json:"recipe"`
	Steps           int                  `json:"steps"`
	TrainLoss       number               `json:"train_loss"` // nats per byte, of the last step; these three are means over the seeds
	ValLoss         number               `json:"val_loss"`
	GapPercent      number               `json:"gap_percent"`                // of the validation loss, to bf16's of the same seed
	GapError        number               `json:"gap_standard_error_percent"` // null where there is one seed
	Runs            []runDocument        `json:"runs"`                       // the ends, by seed; what follows is of the first
	SecondsPerStep  number               `json:"seconds_per_step"`
	TokensPerSecond number               `json:"tokens_per_second"`
	Busy            bool                 `json:"busy"` // other programs had the processors during most steps
	Memory          memoryDocument       `json:"memory"`
	Saturated       number               `json:"saturated"` // shares of the elements of observed operands
	Flushed         number               `json:"flushed"`
	Failed          string               `json:"failed,omitempty"`
	TrainLosses     []number             `json:"train_losses"`
	ValLosses       []validationDocument `json:"val_losses"`
}

// memoryDocument is what a run holds at the peak of a step, in bytes.
type memoryDocument struct {
	Masters     int64 `json:"masters"`   // FP32 weights
	Gradients   int64 `json:"gradients"` // FP32
	Moments     int64 `json:"moments"`   // FP32
	Rowwise     int64 `json:"rowwise"`   // copies of weights
	Columnwise  int64 `json:"columnwise"`
	Activations int64 `json:"activations"`
	Scratch     int64 `json:"scratch"`
	All         int64 `json:"all"`
}

func newMemoryDocument(m report.Memory) memoryDocument {
	return memoryDocument{m.Masters, m.Gradients, m.Moments, m.Rowwise, m.Columnwise, m.Activations, m.Scratch, m.Total()}
}

type runDocument struct {
	Seed      uint64 `json:"seed"`
	TrainLoss number `json:"train_loss"`
	ValLoss   number `json:"val_loss"`
}

type comparedAfterDocument struct {
	Format     string `json:"format"`
	Bits       number `json:"bits_per_element"`
	ValLoss    number `json:"val_loss"`
	Perplexity number `json:"perplexity"`
}

func (k *comparison) document(c *report.Comparison, path string) comparisonDocument {
	doc := comparisonDocument{
		Recipes: []comparedDocument{}, Formats: []comparedAfterDocument{},
		Steps: k.config.Steps, Seed: k.config.Seed, Data: k.config.Corpus.Sources, Parameters: k.parameters(), Report: path,
	}
	for i := range c.Recipes {
		r := &c.Recipes[i]
		training, validation := r.Losses()
		d := comparedDocument{
			Recipe: r.Name, Steps: r.Steps, TrainLoss: number(training), ValLoss: number(validation), GapPercent: number(100 * c.Gap(r)), GapError: number(100 * c.GapError(r)), Runs: []runDocument{},
			SecondsPerStep: number(r.SecondsPerStep), TokensPerSecond: number(r.TokensPerSecond), Busy: r.Busy, Memory: newMemoryDocument(r.Memory),
			Saturated: number(r.Saturated()), Flushed: number(r.Flushed()), Failed: r.Failed, TrainLosses: []number{}, ValLosses: []validationDocument{},
		}
		for _, run := range r.Runs {
			d.Runs = append(d.Runs, runDocument{run.Seed, number(run.TrainLoss), number(run.ValidationLoss)})
		}
		for _, p := range r.Train {
			d.TrainLosses = append(d.TrainLosses, number(p.Loss))
		}
		for _, p := range r.Validation {
			d.ValLosses = append(d.ValLosses, validationDocument{p.Step, number(p.Loss)})
		}
		doc.Recipes = append(doc.Recipes, d)
	}
	for _, f := range c.Formats {
		doc.Formats = append(doc.Formats, comparedAfterDocument{f.Name, number(f.Bits), number(f.Loss), number(report.Perplexity(f.Loss))})
	}
	return doc
}
