package windows

import (
	"context"
	"time"

	"github.com/microscale-go/microscale/calibration"
)

// A Pace is the times that parts of a Run take, as measured on its first window.
type Pace struct {
	Load  time.Duration // of one layer of all stacks
	Layer time.Duration // to apply it to the window
	Head  time.Duration // to score the window
}

// followPasses is how often statistics that follow quantized layers apply a layer: to the stream of the original, and to that of the
// model before and after it is quantized.
const followPasses = 3

// Passes returns how often a window passes a layer, in all layers that are not complete, and the head, in units of a Pace.
func (r *Run) Passes() (layers, heads float64) {
	completed := 0
	if r.Stream != nil {
		completed = r.Stream.Completed()
	}
	n := r.Models[0].Layers()
	switch {
	case r.Inputs != nil:
		for l := completed; l < n; l++ {
			layers += float64(r.Inputs.Passes(l))
			if r.Original != nil {
				layers += followPasses - 1
			}
		}
		return layers, 0
	case !r.Forked():
		return float64(n - completed), 1
	}
	layers, heads = float64(n-completed), 1
	for _, m := range r.Models {
		layers += float64(n - max(completed, firstOf(m)))
		heads += 1 + 1.0/scoredTogether
	}
	return layers, heads
}

// Forked reports whether the models are forks.
func (r *Run) Forked() bool { return firstOf(r.Models[0]) >= 0 }

// Measure loads the first layer and applies it and the head to the first window, several times if that is
// fast; of forks, their original alone. It changes no result of the Run.
func (r *Run) Measure(ctx context.Context) (p Pace, err error) {
	const enough = 100 * time.Millisecond
	if err := r.check(); err != nil {
		return p, err
	}
	probe := *r
	probe.Windows, probe.Amaxes, probe.Inputs, probe.Stream = r.Windows[:1], nil, nil, nil
	probe.Progress, probe.Out, probe.Ranks = nil, nil, nil
	if r.Inputs != nil {
		probe.Inputs = &calibration.Collector{Layers: r.Inputs.Layers, Hessian: r.Inputs.Hessian, Memory: r.Inputs.Memory,
			Threads: r.Inputs.Threads}
	}
	if r.Original != nil && (r.Forked() || r.Inputs != nil) {
		probe.Original, probe.Models = nil, []Stack{r.Original}
	}
	w := newWalk(&probe)
	start := time.Now()
	layers, err := w.load(ctx, 0)
	if err != nil {
		return p, err
	}
	p.Load = time.Since(start)
	defer func() { release(layers) }()
	var runs time.Duration
	for begin, first := time.Now(), true; first || time.Since(begin) < enough; first = false {
		start := time.Now()
		xs, err := w.embedded(0)
		if err == nil {
			xs, err = w.inMemory(ctx, 0, 0, layers, xs)
		}
		if err != nil {
			return p, err
		}
		middle := time.Now()
		if err := w.score(ctx, 0, reading(xs)); err != nil {
			return p, err
		}
		end := time.Now()
		p.Layer, p.Head, runs = p.Layer+middle.Sub(start), p.Head+end.Sub(middle), runs+1
		if first && end.Sub(begin) < enough {
			p.Layer, p.Head, runs = 0, 0, 0 // the first time also fills caches
		}
	}
	p.Layer, p.Head = p.Layer/runs, p.Head/runs
	return p, nil
}
