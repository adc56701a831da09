package evaluation

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/durable"
)

// written runs the evaluation, and writes the Base of the model if there is to be one.
func (r *Evaluated) written(ctx context.Context, run *windows.Run) (result *windows.Result, err error) {
	if r.Base == "" {
		return run.Do(ctx)
	}
	need, dir := float64(windows.BaseBytes(r.plan.Vocabulary, run.Windows)), filepath.Dir(r.Base)
	fmt.Fprintf(r.Stderr, "predicted: %s of disk for %s\n", show.BytesText(need), show.Printable(r.Base))
	if free := freeBytes(dir); need > free {
		return nil, fmt.Errorf("the probabilities take %s, and %s has %s free: name a file on another filesystem, or use a shorter text",
			show.BytesText(need), show.Printable(dir), show.BytesText(free))
	}
	err = durable.WriteStream(r.Base, func(w io.Writer) error {
		run.Out = w
		result, err = run.Do(ctx)
		return err
	}, durable.RenameNew)
	return result, err
}

// mapped is the memory of the program's own code, which the limit of the garbage collector does not count.
const mapped = 32 << 20

// leastLimit is the smallest limit of memory that the garbage collector gets: with less than the program takes by
// itself, it would run all the time.
const leastLimit = 64 << 20

// do runs the evaluation with a meter. The garbage collector keeps a streaming one within its forecast.
func (r *Evaluated) do(ctx context.Context, run *windows.Run, f forecast) error {
	var meter *show.Meter
	before := 0
	run.Progress = func(done, total int) {
		if meter == nil {
			verb := "evaluating"
			if r.inputs != nil || r.amaxes != nil {
				verb = "calibrating"
			}
			if r.variants != nil {
				verb = "measuring"
			}
			meter = show.NewStepMeter(r.Stderr, verb, total)
		}
		meter.Add(int64(done - before))
		before = done
		if peak := host.Resident("self"); r.Stream != "" && peak > 0 {
			meter.Note(show.BytesText(float64(peak)) + " of memory")
		}
	}
	left := "nothing was measured"
	if r.Stream != "" {
		left = "to resume, repeat the command"
		if !run.Forked() {
			limit := max(int64(f.memory)-mapped, leastLimit)
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), limit)))
		}
	}
	start := time.Now()
	result, err := r.written(ctx, run)
	if meter != nil {
		meter.Close()
	}
	r.result, r.seconds = result, time.Since(start).Seconds()
	if result != nil {
		r.earlier = result.Earlier.Seconds()
	}
	if peak := host.Resident("self"); r.Stream != "" && err == nil && peak > 0 {
		fmt.Fprintf(r.Stderr, "took: %s of memory, %s\n", show.BytesText(float64(peak)), r.time())
	}
	return show.Interrupted(err, left)
}
