package windows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

const testVocabulary = blockSize + 9

// testWindows returns overlapping windows, of which the last one is shorter.
func testWindows(t *testing.T) []Window {
	t.Helper()
	m, err := LookupMethod("strided")
	if err != nil {
		t.Fatal(err)
	}
	windows, err := m.Windows(fakeTokens(37, testVocabulary), 10, -1)
	if err != nil {
		t.Fatal(err)
	}
	return windows
}

// newTestRun returns a run of two models beside their original.
func newTestRun(t *testing.T) *Run {
	return &Run{
		Windows: testWindows(t), Original: newFake(testVocabulary, 3, 0),
		Models: []Stack{newFake(testVocabulary, 3, 0.02), newFake(testVocabulary, 3, 0)},
		Local:  true, Amaxes: NewAmaxes(),
	}
}

// TestRun compares losses and errors of a run with those of whole matrices.
func TestRun(t *testing.T) {
	r := newTestRun(t)
	result, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	original, model := r.Original.(*fake), r.Models[0].(*fake)
	var nll []float64
	layers := make([]LayerErrors, 3)
	inputs := map[string]float64{}
	for _, w := range r.Windows {
		x, _ := original.Embed(w.Tokens)
		y, _ := model.Embed(w.Tokens)
		for l := range layers {
			watch := Watch{Linear: func(linear string, in, out tensor.Dense) error {
				got, _ := model.layers[l].Apply(linear, in)
				distance(layers[l].linear(linear), got, out)
				for _, v := range in.Data {
					inputs[linear] = max(inputs[linear], math.Abs(float64(v)))
				}
				return nil
			}}
			x, _ = original.layers[l].Forward(x, watch)
			y, _ = model.layers[l].Forward(y, Watch{})
			distance(&layers[l].Output, y, x)
		}
		logits := product(y, model.head)
		for i := w.First; i < len(w.Tokens); i++ {
			nll = append(nll, -logProbabilities(logits.Row(i - 1))[w.Tokens[i]])
		}
	}
	if len(nll) != 36 || len(result.Comparisons[0].KL) != len(nll) {
		t.Fatalf("%d tokens are scored, want %d", len(result.Comparisons[0].KL), len(nll))
	}
	for i, v := range nll {
		near(t, "loss", result.Comparisons[0].Model.NLL[i], v)
		if kl := result.Comparisons[1].KL[i]; kl != 0 {
			t.Errorf("the divergence of a model from itself is %g", kl)
		}
	}
	for l, want := range layers {
		got := result.Layers[0][l]
		near(t, "output", got.Output.Relative(), want.Output.Relative())
		if len(got.Linears) != 2 || want.Output.Relative() < 1e-4 {
			t.Fatalf("layer %d: %v", l, got)
		}
		for i, linear := range want.Linears {
			near(t, linear.Name, got.Linears[i].Error.Relative(), linear.Error.Relative())
			if inputs[linear.Name] != r.Amaxes.Input[linear.Name] || inputs[linear.Name] == 0 {
				t.Errorf("amax of %s: got %g, want %g", linear.Name, r.Amaxes.Input[linear.Name], inputs[linear.Name])
			}
		}
		if same := result.Layers[1][l]; same.Output.Relative() != 0 || same.Linears[0].Error.Relative() != 0 {
			t.Errorf("layer %d: the error of a model against itself is %v", l, same)
		}
	}
	alone := &Run{Windows: r.Windows, Models: r.Models[:1]}
	scores, err := alone.Do(t.Context())
	if err != nil || !reflect.DeepEqual(scores.Scores, result.Comparisons[0].Model) {
		t.Errorf("the scores without an original differ (%v)", err)
	}
}

// distance is Error.add in the order of the elements.
func distance(e *Error, got, want tensor.Dense) {
	for i, w := range want.Data {
		d := float64(got.Data[i]) - float64(w)
		e.Distance += d * d
		e.Norm += float64(w) * float64(w)
	}
}

// TestStream interrupts a streaming run after every number of steps, resumes it, and compares the
// bits of the result with those of a run window by window. The end of the run removes its files, and the
// directory unless that existed before the first run.
func TestStream(t *testing.T) {
	whole := newTestRun(t)
	want, err := whole.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps := len(whole.Windows) * 4
	for stop := range steps {
		dir, left := filepath.Join(t.TempDir(), "scratch"), os.ErrNotExist
		if stop%2 == 1 {
			dir, left = t.TempDir(), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := newTestRun(t)
		first.Stream = &Stream{Dir: dir, Key: testKey()}
		first.Progress = func(done, _ int) {
			if done == stop {
				cancel()
			}
		}
		if stop == 0 {
			cancel()
		}
		if _, err := first.Do(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("step %d: got %v, want the interruption", stop, err)
		}
		again := newTestRun(t)
		again.Stream = &Stream{Dir: dir, Key: testKey()}
		begun := math.MaxInt
		again.Progress = func(done, total int) {
			begun = min(begun, done)
			if total != steps {
				t.Errorf("%d steps in total, want %d", total, steps)
			}
		}
		got, err := again.Do(t.Context())
		if err != nil {
			t.Fatalf("resumed after step %d: %v", stop, err)
		}
		if entries, err := os.ReadDir(dir); !errors.Is(err, left) || len(entries) > 0 {
			t.Errorf("resumed after step %d: the directory has %v, %v, want no files, %v", stop, entries, err, left)
		}
		if got.Earlier <= 0 { // at least the embedding is complete
			t.Errorf("resumed after step %d: earlier runs took %v", stop, got.Earlier)
		}
		got.Earlier = 0
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(again.Amaxes, whole.Amaxes) {
			t.Fatalf("resumed after step %d: the results differ", stop)
		}
		if complete := stop / len(whole.Windows) * len(whole.Windows); begun != complete+1 {
			t.Errorf("resumed after step %d at step %d, want %d", stop, begun, complete+1)
		}
		for _, m := range again.Models {
			for i, l := range m.(*fake).layers {
				if l.released != (i >= stop/len(whole.Windows)) {
					t.Errorf("resumed after step %d: layer %d: released: %v", stop, i, l.released)
				}
			}
		}
	}
}

// TestMeasure requires times of the first layer and the head, and no effect on the run.
func TestMeasure(t *testing.T) {
	whole, r := newTestRun(t), newTestRun(t)
	want, err := whole.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Measure(t.Context())
	if err != nil || p.Layer <= 0 || p.Head <= 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	if !reflect.DeepEqual(r.Amaxes, NewAmaxes()) {
		t.Errorf("it left the amaxes %+v", r.Amaxes)
	}
	for _, s := range append(slices.Clone(r.Models), r.Original) {
		s.(*fake).layers[0].released = false // a streaming run reads it again
	}
	if got, err := r.Do(t.Context()); err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(r.Amaxes, whole.Amaxes) {
		t.Errorf("the results differ after Measure: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTestRun(t).Measure(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
}

func TestStreamErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	r := newTestRun(t)
	r.Stream = &Stream{Dir: dir, Key: testKey()}
	if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("got %v", err)
	}
	other := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	r.Stream.Dir, r.Progress = other, func(int, int) { cancel() }
	if _, err := r.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Stream.Key = map[string]string{"model": "m", "text": "another", "reference": "r"}
	if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(),
		"holds an interrupted evaluation with another reference and another text: ") {
		t.Errorf("got %v", err)
	}
	r.Stream.Key = testKey()
	name := filepath.Join(other, streamState)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"{", "", strings.Replace(string(good), `"layers":0`, `"layers":1`, 1)} {
		if err := os.WriteFile(name, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "not the state of an evaluation") {
			t.Errorf("%.20q: got %v", bad, err)
		}
	}
}

// testKey returns the key of a test evaluation.
func testKey() map[string]string { return map[string]string{"model": "m", "text": "t"} }

// TestStreamFailures checks what a run that fails leaves: nothing before its first layer is complete,
// and otherwise the completed layers, which the error names.
func TestStreamFailures(t *testing.T) {
	for layer, kept := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "scratch")
		r := newTestRun(t)
		r.Stream = &Stream{Dir: dir, Key: testKey()}
		r.Models[0].(*fake).layers[layer].broken = true
		_, err := r.Do(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is NaN") || strings.Contains(err.Error(), dir+" keeps the completed layers") != kept {
			t.Errorf("layer %d: got %v", layer, err)
		}
		if _, err := os.Stat(filepath.Join(dir, streamState)); (err == nil) != kept {
			t.Errorf("layer %d: the state: %v", layer, err)
		}
	}
}

// TestStreamLock checks that a run does not use a directory that another one uses.
func TestStreamLock(t *testing.T) {
	r := newTestRun(t)
	r.Stream = &Stream{Dir: t.TempDir(), Key: testKey()}
	var second error
	r.Progress = func(done, _ int) {
		if done == 1 {
			other := newTestRun(t)
			other.Stream = r.Stream
			_, second = other.Do(t.Context())
		}
	}
	if _, err := r.Do(t.Context()); err != nil {
		t.Error(err)
	}
	if second == nil || !strings.Contains(second.Error(), "another evaluation uses the directory") {
		t.Errorf("second run: got %v", second)
	}
}

func TestRunErrors(t *testing.T) {
	broken := newFake(testVocabulary, 3, 0)
	broken.layers[1].broken = true
	short := newFake(testVocabulary, 3, 0)
	short.positions = 9
	windows := testWindows(t)
	fine := newFake(testVocabulary, 3, 0)
	for _, tc := range []struct {
		run  Run
		want string
	}{
		{Run{Windows: windows}, "got 0 models"},
		{Run{Models: []Stack{fine}}, "there are no windows"},
		{Run{Windows: windows, Models: []Stack{fine, fine}}, "got 2 models, want one, or several and their original"},
		{Run{Windows: windows, Models: []Stack{short}}, "window 1 has 10 tokens, want at most 9"},
		{Run{Windows: windows, Models: []Stack{newFake(100, 3, 0)}}, "want less than 100, the vocabulary"},
		{Run{Windows: windows, Models: []Stack{newFake(testVocabulary+1, 3, 0)}, Original: fine}, "only models with the same tokenizer"},
		{Run{Windows: windows, Models: []Stack{newFake(testVocabulary, 2, 0)}, Original: fine}, "has 2 layers, the original 3"},
		{Run{Windows: windows, Models: []Stack{broken}}, "window 1: the logits of scored token 0 of the window are NaN"},
		{Run{Windows: windows, Models: []Stack{broken}, Original: fine}, "window 1: layer 1: the output is NaN"},
	} {
		if _, err := tc.run.Do(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// TestThreads compares the bits of runs with several numbers of threads.
func TestThreads(t *testing.T) {
	var want *Result
	for _, threads := range []int{1, 2, 5} {
		r := newTestRun(t)
		r.Threads = threads
		got, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads change the result", threads)
		}
		want = got
	}
}

// BenchmarkCompare measures the cost of one scored token of a vocabulary of 49152.
func BenchmarkCompare(b *testing.B) {
	logits := tensor.New(64, 49152)
	for i := range logits.Data {
		logits.Data[i] = float32(i%977) / 50
	}
	s := scorer{logits.Cols, 1}
	targets := make([]int32, logits.Rows)
	for b.Loop() {
		if err := s.compare([]*Comparison{{}}, headOf(logits), []Head{headOf(logits)}, targets); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*logits.Rows), "µs/token")
}

func ExampleMethod() {
	m, _ := LookupMethod("all")
	windows, _ := m.Windows([]int32{1, 2, 3, 4, 5}, 2, -1)
	fmt.Println(len(windows), windows[1].Tokens, windows[1].Scored())
	// Output: 2 [3 4] 1
}
