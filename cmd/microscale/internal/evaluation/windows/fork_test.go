package windows

import (
	"context"
	"errors"
	"reflect"
	"testing"
)

// A fakeFork is a fake of which one layer is not that of the original.
type fakeFork struct {
	*fake
	first int
}

func (f fakeFork) First() int { return f.first }

func (f fakeFork) Layer(ctx context.Context, i int, original Layer) (Layer, error) {
	if i != f.first {
		return original, nil
	}
	return f.fake.Layer(ctx, i, original)
}

// forkedRun returns a run of 20 models, each with one layer of another, as forks or as models of their own.
func forkedRun(t *testing.T, forks bool) *Run {
	t.Helper()
	const layers, vocabulary = 4, 50
	m, err := LookupMethod("all")
	if err != nil {
		t.Fatal(err)
	}
	windows, err := m.Windows(fakeTokens(20, vocabulary), 5, -1)
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{Windows: windows, Original: newFake(vocabulary, layers, 0), Threads: 2}
	for i := range 20 {
		first, noisy := i%layers, newFake(vocabulary, layers, 0.01*float32(i+1))
		whole := newFake(vocabulary, layers, 0)
		whole.layers[first] = noisy.layers[first]
		if forks {
			r.Models = append(r.Models, fakeFork{noisy, first})
		} else {
			r.Models = append(r.Models, whole)
		}
	}
	return r
}

// TestFork compares forks with models that compute all layers: window by window, layer by layer, and interrupted.
func TestFork(t *testing.T) {
	want, err := forkedRun(t, false).Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same := func(name string, r *Run) {
		t.Helper()
		total := 0
		r.Progress = func(done, all int) {
			if total = all; done > all {
				t.Errorf("%s: step %d of %d", name, done, all)
			}
		}
		got, err := r.Do(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got.Comparisons, want.Comparisons) {
			t.Errorf("%s: other results", name)
		}
		if want := len(r.Windows) * (6 + 11 + 16 + 21 + 21); total != want {
			t.Errorf("%s: %d steps, want %d", name, total, want)
		}
	}
	same("by window", forkedRun(t, true))
	stream := &Stream{Dir: t.TempDir(), Key: testKey()}
	r := forkedRun(t, true)
	r.Stream = stream
	same("by layer", r)
	if layers, heads := r.Passes(); layers != 4+5*(4+3+2+1) || heads != 21+20.0/scoredTogether {
		t.Errorf("%g passes of layers and %g of heads", layers, heads)
	}
	for _, stop := range []int{1, len(r.Windows) + 1, 4*len(r.Windows) + 1} { // in the first layer, in the second, at the head
		r := forkedRun(t, true)
		r.Stream = stream
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		r.Progress = func(int, int) {
			if steps++; steps == stop {
				cancel()
			}
		}
		if _, err := r.Do(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		again := forkedRun(t, true)
		again.Stream = stream
		same("interrupted", again)
	}
}
