package train

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// tiny returns a run with steps of a few milliseconds.
func tiny(t *testing.T, name string) Config {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Model = decoder.Config{VocabSize: 256, HiddenSize: 32, IntermediateSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 2,
		NumKeyValueHeads: 1, MaxPositionEmbeddings: 32}
	c.Recipe, c.Data = r, newCorpus(synthesize(1<<15), synthetic)
	c.Steps, c.Batch, c.Microbatches, c.Sequence = 8, 4, 2, 32
	c.ValidationTokens, c.ValidateEvery, c.CheckpointEvery = 256, 3, 2
	c.Threads = 1
	return c
}

// onStep returns a Progress that calls f after the given step, or after every step for 0.
func onStep(step int, f func()) func(Event) {
	return func(e Event) {
		if e.Kind == Step && (step == 0 || e.Step == step) {
			f()
		}
	}
}

// mustRun runs c and fails the test on errors.
func mustRun(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// same reports whether two runs have bit-identical losses.
func same(a, b *Result) bool {
	return slices.Equal(a.TrainLoss, b.TrainLoss) && slices.Equal(a.Validation, b.Validation)
}

// recipes returns all recipes, or under -short (for emulated processors) one with state and one with
// every kind of quantization.
func recipes() []recipe.Recipe {
	return slices.DeleteFunc(recipe.Recipes(), func(r recipe.Recipe) bool {
		return testing.Short() && r.Name != "delayed" && r.Name != "nvfp4"
	})
}

// TestThreads checks that losses do not depend on the number of threads, but on the seed.
func TestThreads(t *testing.T) {
	for _, r := range recipes() {
		c := tiny(t, r.Name)
		c.Steps = 4
		want := mustRun(t, c)
		for _, threads := range []int{2, 3} {
			c.Threads = threads
			if got := mustRun(t, c); !same(got, want) {
				t.Errorf("%s: losses on %d threads: got\n%v\nwant\n%v", r.Name, threads, got.TrainLoss, want.TrainLoss)
			}
		}
		c.Seed = 2
		if got := mustRun(t, c); same(got, want) {
			t.Errorf("%s: losses of two seeds are equal", r.Name)
		}
		if steps := []int{want.Validation[0].Step, want.Validation[1].Step}; !slices.Equal(steps, []int{3, 4}) {
			t.Errorf("%s: got validations after steps %v", r.Name, steps)
		}
	}
}

// TestLearns checks that the loss falls from ln 256 under every recipe.
func TestLearns(t *testing.T) {
	for _, r := range recipes() {
		c := tiny(t, r.Name)
		c.Steps, c.ValidateEvery, c.LearningRate, c.Threads = 25, 0, 1e-2, 0
		got := mustRun(t, c)
		first := got.TrainLoss[0]
		_, last := got.FinalLoss()
		if math.Abs(first-math.Log(256)) > 0.3 || last > 3.5 {
			t.Errorf("%s: got losses from %.3f to %.3f", r.Name, first, last)
		}
	}
}

// TestHoldQuantized checks that losses with held weights are bit-identical, with and without
// recomputation, and that the resulting model has the decoded values.
func TestHoldQuantized(t *testing.T) {
	for _, name := range []string{"delayed", "tensorwise", "mxfp8", "nvfp4"} {
		c := tiny(t, name)
		c.Options.Recompute = name == "mxfp8"
		want := mustRun(t, c)
		c.HoldQuantized = true
		got := mustRun(t, c)
		if !same(got, want) {
			t.Errorf("%s: got losses\n%v\nwant\n%v", name, got.TrainLoss, want.TrainLoss)
		}
		// Held weights save the columnwise copies of all layers but one.
		n, m := want.Memory, got.Memory
		if m.Masters != n.Masters || m.Rowwise != n.Rowwise || m.Activations() != n.Activations() || m.Columnwise >= n.Columnwise ||
			m.Total() >= n.Total() {
			t.Errorf("%s: got memory %+v with held weights, %+v without", name, m, n)
		}
		for i, p := range got.Model.Params() {
			master := want.Model.Params()[i]
			quantized := strings.Contains(p.Name, "proj")
			if slices.Equal(p.Value.Data, master.Value.Data) == quantized {
				t.Errorf("%s: %s: values equal the master weights: %t", name, p.Name, quantized)
			}
		}
	}
	c := tiny(t, "bf16")
	c.HoldQuantized = true
	if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(),
		"Config.HoldQuantized is true, but the recipe bf16 does not quantize weights") {
		t.Errorf("error %v", err)
	}
}

// TestHoldQuantizedHeap measures the heap between two steps: held weights save the memory of columnwise
// copies.
func TestHoldQuantizedHeap(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	heap := func(hold bool) (live int64, m decoder.Memory) {
		c := tiny(t, "mxfp8")
		c.Model.HiddenSize, c.Model.IntermediateSize, c.HoldQuantized = 256, 1024, hold
		c.Progress = onStep(0, func() {
			var s runtime.MemStats
			runtime.GC()
			runtime.GC() // the second one frees pools
			runtime.ReadMemStats(&s)
			live = max(live, int64(s.HeapAlloc))
		})
		result, err := Run(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return live, result.Memory
	}
	plain, without := heap(false)
	held, with := heap(true)
	want := without.Columnwise - with.Columnwise
	if want <= 0 || int(plain-held) < want/2 {
		t.Errorf("heap: got %d bytes with held weights and %d without, want %d less", held, plain, want)
	}
	t.Logf("%d bytes of heap with quantized weights, %d without; %d less are counted", held, plain, want)
}

// TestMicrobatches checks that gradients are the mean over the batch for any number of microbatches.
// Under f32 only the order of sums differs.
func TestMicrobatches(t *testing.T) {
	c := tiny(t, "f32")
	c.Microbatches = 1
	want := mustRun(t, c)
	c.Microbatches = 4
	got := mustRun(t, c)
	for i := range want.TrainLoss {
		if d := math.Abs(got.TrainLoss[i] - want.TrainLoss[i]); d > 1e-3 {
			t.Errorf("step %d: got loss %g, want %g", i+1, got.TrainLoss[i], want.TrainLoss[i])
		}
	}
}

// TestResume interrupts a run after each of its steps, and resumes it.
func TestResume(t *testing.T) {
	for _, name := range []string{"delayed", "nvfp4", "held"} {
		c := tiny(t, "delayed")
		if c.HoldQuantized = name == "held"; !c.HoldQuantized {
			c = tiny(t, name)
		}
		want := mustRun(t, c)
		c.Out = filepath.Join(t.TempDir(), "out")
		c.CheckpointEvery = 0
		for step := 1; ; step++ {
			ctx, cancel := context.WithCancel(context.Background())
			c.Progress = onStep(0, cancel)
			got, err := Run(ctx, c)
			cancel()
			if err == nil {
				if !same(got, want) {
					t.Errorf("%s: got losses\n%v\nwant\n%v", name, got.TrainLoss, want.TrainLoss)
				}
				break
			}
			var i *Interrupted
			if !errors.As(err, &i) || i.Step != step || i.Out != c.Out {
				t.Fatalf("%s: step %d: %v", name, step, err)
			}
			if stored, _, err := c.LastCheckpoint(); err != nil || stored != step {
				t.Fatalf("%s: step %d: the last checkpoint has %d steps, %v", name, step, stored, err)
			}
			c.Resume = true
		}
		if _, err := Run(context.Background(), c); !errors.Is(err, ErrDone) {
			t.Errorf("%s: resume of a complete run: got %v, want ErrDone", name, err)
		}
		if found, err := look(c.Out); err != nil || found.dir != "" || len(found.debris) > 0 {
			t.Errorf("%s: a complete run left %+v, %v", name, found, err)
		}
		m, err := decoder.Load(t.Context(), c.Out, decoder.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.Params()); n != len(want.Model.Params()) {
			t.Errorf("%s: saved model: got %d parameters", name, n)
		}
	}
}

// TestKilled kills the process of a run at several steps, resumes it in another process until that is
// killed too, and compares the losses with those of one run.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts processes")
	}
	c := tiny(t, "delayed")
	c.CheckpointEvery = 1
	if flag.NArg() > 0 {
		c.Out, c.Resume = flag.Arg(0), flag.Arg(1) == "resume"
		c.Progress = func(e Event) {
			if e.Kind == Step {
				fmt.Println("step", e.Step, e.Loss)
			}
		}
		if _, err := Run(context.Background(), c); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	want := mustRun(t, c)
	losses := make([]string, c.Steps)
	for i, l := range want.TrainLoss {
		losses[i] = fmt.Sprintln("step", i+1, l)
	}
	out := filepath.Join(t.TempDir(), "out")
	mode, reached := "new", 0
	for kill := 1; ; kill++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$", "--", out, mode)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, seen, done := bufio.NewReader(pipe), 0, false
		for {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break
			}
			if line == "done\n" {
				done = true
				break
			}
			i := slices.Index(losses, line)
			if i < 0 {
				t.Fatalf("process after %d kills: got %q, want one of\n%s", kill-1, line, strings.Join(losses, ""))
			}
			reached = max(reached, i+1)
			if seen++; seen == 2 { // while the checkpoint of the step is written
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed
		if done {
			break
		}
		if kill > 2*c.Steps {
			t.Fatalf("got to step %[2]d after %[1]d kills", kill, reached)
		}
		mode = "resume"
	}
	if reached != c.Steps {
		t.Errorf("the run ended after step %d", reached)
	}
}

// TestResumeMismatch checks the errors for a checkpoint of another model, recipe or text.
func TestResumeMismatch(t *testing.T) {
	c := tiny(t, "mxfp8")
	c.Out = filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	c.Progress = onStep(0, cancel)
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), c); !errors.Is(err, fs.ErrExist) {
		t.Errorf("new run in the directory of another: got %v", err)
	}
	c.Resume = true
	for _, tc := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Model.HiddenSize = 64 }, "model.hidden_size is 32 in the checkpoint and 64 in the configuration"},
		{func(c *Config) { c.Recipe = tiny(t, "nvfp4").Recipe }, `recipe.name is "mxfp8" in the checkpoint and "nvfp4" in the configuration`},
		{func(c *Config) { _ = c.Recipe.Set("scale_rule", "floor") }, `recipe.Input.Rowwise.Rule is `},
		{func(c *Config) { c.Data = newCorpus(synthesize(1<<14), synthetic) }, "data is "},
		{func(c *Config) { c.Steps = 9 }, "steps is 8 in the checkpoint and 9 in the configuration"},
		{func(c *Config) { c.Seed = 2 }, "seed is 1 in the checkpoint and 2 in the configuration"},
	} {
		other := c
		tc.change(&other)
		if _, err := Run(context.Background(), other); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
	c.Threads = 3 // not part of the identity
	mustRun(t, c)
}

// TestTwoRuns checks that a second run in the directory of an active one is an error, also before the
// first checkpoint, and does not disturb the first.
func TestTwoRuns(t *testing.T) {
	c := tiny(t, "bf16")
	c.Steps, c.CheckpointEvery, c.Out = 2, 1, filepath.Join(t.TempDir(), "out")
	if err := os.Mkdir(c.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	busy := func(err error) {
		t.Helper()
		if e, ok := errors.AsType[*DirectoryError](err); !ok || !e.Busy || !strings.HasPrefix(err.Error(),
			c.Out+": another run is writing to it") {
			t.Errorf("got %v, want a *DirectoryError that is Busy", err)
		}
	}
	release, err := claim(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(context.Background(), c)
	busy(err)
	release()
	resumed := c
	resumed.Resume = true
	other := c
	c.Progress = onStep(0, func() {
		_, err := Run(context.Background(), resumed)
		busy(err)
		_, _, err = c.LastCheckpoint()
		busy(err)
		if _, err = Run(context.Background(), other); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a new run beside an active one: got %v, want fs.ErrExist", err)
		}
	})
	if _, err := Run(context.Background(), c); err != nil {
		t.Error(err)
	}
	if _, err := decoder.Load(t.Context(), c.Out, decoder.LoadOptions{}); err != nil {
		t.Error(err)
	}
}

// TestWithdraw checks that a run whose first step fails leaves no files, and removes its directory only if it
// created that.
func TestWithdraw(t *testing.T) {
	c := tiny(t, "nvfp4")
	c.Model.MaxPositionEmbeddings = c.Sequence / 2
	dir := t.TempDir()
	for out, want := range map[string]error{filepath.Join(dir, "out"): os.ErrNotExist, t.TempDir(): nil} {
		c.Out = out
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "position") {
			t.Errorf("error %v", err)
		}
		if entries, err := os.ReadDir(out); !errors.Is(err, want) || len(entries) > 0 {
			t.Errorf("directory: got %v, %v, want no files, %v", entries, err, want)
		}
	}
}

// TestAnyLength trains on sequences whose length is not a multiple of any block.
func TestAnyLength(t *testing.T) {
	for _, name := range []string{"delayed", "nvfp4"} {
		c := tiny(t, name)
		c.Steps, c.Batch, c.Microbatches, c.Sequence, c.ValidationTokens = 2, 3, 3, 13, 50
		mustRun(t, c)
	}
}

// TestDiverged checks that a run whose weights grow without bound returns a *Diverged and keeps its last
// checkpoint, also if NaN makes scales NaN.
func TestDiverged(t *testing.T) {
	for _, name := range []string{"bf16", "mxfp8", "nvfp4", "blockwise"} {
		c := tiny(t, name)
		for _, o := range []*recipe.Operand{&c.Recipe.Input, &c.Recipe.Weight, &c.Recipe.Grad} {
			o.Rowwise.NonFinite, o.Columnwise.NonFinite = quant.Poison, quant.Poison
		}
		c.LearningRate, c.Clip, c.Schedule, c.Warmup = 1e30, 0, constant, 0
		c.Out = filepath.Join(t.TempDir(), "out")
		c.CheckpointEvery = 1
		_, err := Run(context.Background(), c)
		var d *Diverged
		if !errors.As(err, &d) {
			t.Fatalf("recipe %s: got error %v", name, err)
		}
		t.Log(name, err)
		if d.Tensor == "" || d.NaN+d.Inf == 0 || d.Kept != d.Step-1 {
			t.Errorf("recipe %s: got %+v", name, d)
		}
		if stored, _, err := c.LastCheckpoint(); err != nil || stored != d.Kept {
			t.Errorf("recipe %s: the last checkpoint has %d steps, %v", name, stored, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Steps = 0 }, "Config.Steps is 0, want at least 1"},
		{func(c *Config) { c.Microbatches = 3 }, "Microbatches is 3, want a divisor of the batch of 4 sequences"},
		{func(c *Config) { c.LearningRate = 0 }, "LearningRate is 0"},
		{func(c *Config) { c.LearningRate = math.NaN() }, "LearningRate is NaN"},
		{func(c *Config) { c.Warmup = 1.5 }, "Warmup is 1.5"},
		{func(c *Config) { c.ValidationTokens = 31 }, "ValidationTokens is 31, want at least 32"},
		{func(c *Config) { c.Recipe = tiny(t, "mxfp8").Recipe; c.Model.HiddenSize = 40 },
			"Model.HiddenSize is 40: the width of the model is 40, want a multiple of 32 for the recipe mxfp8"},
		{func(c *Config) { c.Recipe = tiny(t, "nvfp4").Recipe; c.Model.IntermediateSize = 72 }, "Model.IntermediateSize is 72: "},
		{func(c *Config) { c.Recipe = tiny(t, "mxfp8").Recipe; c.Model.HeadDim = 8 }, "Model.NumAttentionHeads is "},
		{func(c *Config) { c.Options.FirstBF16 = -1 }, "Options.FirstBF16 is -1"},
		{func(c *Config) { c.Options.LastBF16 = 99 }, "Options.LastBF16 is 99"},
		{func(c *Config) { c.Data = newCorpus([]byte("short"), "x") }, "x: a text of 5 bytes is too short"},
	} {
		c := tiny(t, "bf16")
		tc.change(&c)
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}
