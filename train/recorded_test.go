package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/recipe"
)

var update = flag.Bool("update", false, "rewrite testdata")

// recordedCases returns small runs under every recipe, and under the options that change what
// a step computes. Each has two microbatches and validates after every step.
func recordedCases(t *testing.T) (names []string, runs []Config) {
	add := func(name, recipeName string, change func(c *Config)) {
		c := tiny(t, recipeName)
		c.Steps, c.ValidateEvery, c.ValidationTokens = 3, 1, 64
		change(&c)
		names, runs = append(names, name), append(runs, c)
	}
	set := func(name string) func(c *Config) {
		return func(c *Config) {
			if err := c.Recipe.Set(name, "true"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range recipe.Recipes() {
		add(r.Name, r.Name, func(*Config) {})
	}
	for _, name := range []string{"delayed", "tensorwise", "mxfp8", "nvfp4"} {
		add(name+"/fp8-param", name, func(c *Config) { c.HoldQuantized = true })
	}
	for _, name := range []string{"delayed", "mxfp8"} {
		add(name+"/recompute", name, func(c *Config) { c.Options.Recompute = true })
		add(name+"/store_quantized_activations", name, set("store_quantized_activations"))
		add(name+"/fp8_dpa", name, set("fp8_dpa"))
	}
	add("tensorwise/fp8_mha", "tensorwise", set("fp8_mha"))
	add("mxfp8/first-last-bf16", "mxfp8", func(c *Config) { c.Options.FirstBF16 = 1 })
	add("nvfp4/padded", "nvfp4", func(c *Config) { c.Batch, c.Microbatches, c.Sequence = 3, 3, 13 })
	return names, runs
}

// recordedRow runs c, interrupted after its second step and resumed, and returns its losses and
// a hash of the bits of its losses and of its weights.
func recordedRow(t *testing.T, name string, c Config) string {
	c.Out = filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.Progress = onStep(2, cancel)
	_, err := Run(ctx, c)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%s: got %v, want an interruption", name, err)
	}
	c.Resume, c.Progress = true, nil
	r := mustRun(t, c)
	sum := sha256.New()
	write := func(v any) {
		if err := binary.Write(sum, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	write(r.TrainLoss)
	for _, p := range r.Validation {
		write(p.Loss)
	}
	for _, p := range r.Model.Params() {
		write(p.Value.Data)
	}
	text := fmt.Sprintf("%-34s", name)
	for _, l := range r.TrainLoss {
		text += fmt.Sprintf(" %.6f", l)
	}
	_, validation := r.FinalLoss()
	return fmt.Sprintf("%s  %.6f  %x\n", text, validation, sum.Sum(nil)[:8])
}

const recordedHeader = `# Losses of tiny training runs on portable kernels, written by go test ./train -run TestRecorded -update.
# run, training loss of three steps, validation loss, hash of the bits of all losses and weights
`

// TestRecorded compares training under every recipe with recorded losses, bit by bit. It uses
// the portable kernels, whose results do not depend on the processor's instructions.
func TestRecorded(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the losses were recorded on amd64: other compilers may fuse multiplications and additions in package math")
	}
	before := cpu.Best()
	if err := cpu.Force(cpu.Plain); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cpu.Force(before) }()
	const path = "testdata/losses.txt"
	names, runs := recordedCases(t)
	if *update {
		text := recordedHeader
		for i, c := range runs {
			text += recordedRow(t, names[i], c)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.SplitAfter(strings.TrimPrefix(string(text), recordedHeader), "\n")
	if len(rows) != len(runs)+1 {
		t.Fatalf("%s has %d rows, want %d", path, len(rows)-1, len(runs))
	}
	for i, c := range runs {
		if testing.Short() && !strings.HasPrefix(names[i], "delayed") && names[i] != "nvfp4" {
			continue
		}
		if got := recordedRow(t, names[i], c); got != rows[i] {
			t.Errorf("got  %swant %s", got, rows[i])
		}
	}
}
