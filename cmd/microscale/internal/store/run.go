package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/verify"
)

// mostParts is the number of parts that one process divides a result into. The folder is listed for each.
const mostParts = 256

// Run runs a plan a part at a time, as workers would ([convert.Plan.Worker]): it writes each to the local path at, uploads it while the
// next one is made, and joins them in the store. The local disk has two parts at most. uploading is called when only the upload of the
// last part is left, and returns a function that it reports to. Of the options, Progress reports all parts.
func (d *Destination) Run(ctx context.Context, plan *convert.Plan, at string, o convert.RunOptions,
	uploading func() func(done, total int64)) (result *convert.Result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var before, total int64
	_, total = plan.SourceBytes()
	all, warnings, resumed := o.Progress, []string(nil), false
	uploaded := make(chan error, 1)
	uploaded <- nil
	for _, file := range plan.Files() {
		d.Weights = append(d.Weights, file.Name)
	}
	count := min(len(d.Weights), mostParts)
	report := func(_, _ int64) {}
	for i := range count {
		var last verify.Progress
		o.Progress = func(p verify.Progress) {
			if last = p; all != nil {
				all(verify.Progress{Stage: p.Stage, Done: before + p.Done, Total: max(total, before+p.Total)})
			}
		}
		part, err := d.Part(ctx, i, count)
		if err == nil {
			result, err = part.run(ctx, plan, at, i, count, o)
		}
		if err != nil {
			cancel(err)
		}
		if failed := <-uploaded; err != nil || failed != nil { // not before the upload has ended
			return nil, cmp.Or(context.Cause(ctx), failed)
		}
		before += last.Total
		resumed = resumed || result.Resumed || result.Finished
		for _, text := range result.Warnings { // those of the whole run come from each part
			if !slices.Contains(warnings, text) {
				warnings = append(warnings, text)
			}
		}
		if i == count-1 {
			report = uploading()
		}
		go func() {
			err := part.Upload(ctx, report)
			if err == nil {
				err = part.Discard()
			}
			if err != nil {
				cancel(err) // the part that is made meanwhile
			}
			uploaded <- err
		}()
	}
	if err := <-uploaded; err != nil {
		return nil, err
	}
	if result, err = Merge(ctx, d.String(), convert.RunOptions{Force: o.Force}); err != nil {
		return nil, err
	}
	result.Warnings, result.Resumed, result.Finished = append(warnings, result.Warnings...), resumed, false
	return result, nil
}

// run makes part i of count. With Force, a part that the store has may be of another plan: it is made anew.
func (d *Destination) run(ctx context.Context, plan *convert.Plan, at string, i, count int, o convert.RunOptions) (*convert.Result, error) {
	part, err := plan.Worker(i, count)
	if err != nil {
		return nil, err
	}
	result, err := part.Run(ctx, at, o)
	if errors.Is(err, convert.ErrChanged) && o.Force && d.Restored() {
		if err := d.Discard(); err != nil {
			return nil, err
		}
		result, err = part.Run(ctx, at, o)
	}
	return result, err
}

// Merge is convert.Merge for parts in an object store, whose files have their final names already.
func Merge(ctx context.Context, dst string, o convert.RunOptions) (*convert.Result, error) {
	d, err := OpenDestination(ctx, dst)
	if err != nil {
		return nil, err
	}
	d.Force = o.Force
	parts, err := d.Parts(ctx)
	if err != nil {
		return nil, err
	}
	if parts.Complete {
		return &convert.Result{Finished: true}, nil
	}
	o.Uploaded = func(worker int, name string, size int64) error { return parts.Check(ctx, worker, name, size) }
	result, err := convert.Merge(ctx, parts.Path, o)
	if err == nil {
		err = parts.Publish(ctx)
	}
	return result, errors.Join(parts.Renamed(err), parts.Close())
}
