package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// mostParts is the number of parts that one process divides a result into. The folder is listed for each.
const mostParts = 256

// divided reports whether the result is uploaded in parts, about one for each file of weights: not if the run has one, or
// needs a statistic of a text for all of them.
func (f *runFlags) divided(cmd *cobra.Command, plan *convert.Plan) bool {
	_, workers := f.shard.Worker()
	files := plan.Files()
	return f.remote != nil && workers == 0 && len(files) > 1 && !f.remote.Single() && !cmd.Flags().Changed("text") &&
		!cmd.Flags().Changed("activations") &&
		!slices.ContainsFunc(files, func(f convert.File) bool { return !strings.HasSuffix(f.Name, safetensors.Suffix) })
}

// runParts runs the plan of c a part at a time, as workers would ([convert.Plan.Worker]), uploads each part while the next
// one is made, and joins them in the store. The local disk has two parts at most.
func (f *runFlags) runParts(cmd *cobra.Command, c *conversion.Conversion, m *show.Meter) (result *convert.Result, err error) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	var before, total int64
	_, total = c.Plan.SourceBytes()
	o, warnings, resumed := f.options, []string(nil), false
	uploaded := make(chan error, 1)
	uploaded <- nil
	for _, file := range c.Plan.Files() {
		f.remote.Weights = append(f.remote.Weights, file.Name)
	}
	count := min(len(f.remote.Weights), mostParts)
	report := func(_, _ int64) {}
	for i := range count {
		var last verify.Progress
		o.Progress = func(p verify.Progress) {
			last = p
			m.Report(before+p.Done, max(total, before+p.Total))
		}
		d, err := f.remote.Part(ctx, i, count)
		if err == nil {
			result, err = runPart(ctx, c, d, i, count, o)
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
			upload := show.NewMeter(cmd.ErrOrStderr(), "uploading the last part", 0)
			defer upload.Close()
			report = upload.Report
		}
		go func() {
			err := d.Upload(ctx, report)
			if err == nil {
				err = d.Discard()
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
	if result, err = mergeStored(ctx, f.remote.String(), convert.RunOptions{Force: o.Force}); err != nil {
		return nil, err
	}
	f.uploaded, c.Uploaded, c.Destination = true, true, f.remote.String()
	result.Warnings, result.Resumed, result.Finished = append(warnings, result.Warnings...), resumed, false
	return result, nil
}

// runPart makes part i of count at d. With Force, a part that the store has may be of another plan: it is made anew.
func runPart(ctx context.Context, c *conversion.Conversion, d *store.Destination, i, count int,
	o convert.RunOptions) (*convert.Result, error) {
	part, err := c.Plan.Worker(i, count)
	if err != nil {
		return nil, err
	}
	result, err := part.Run(ctx, c.Destination, o)
	if errors.Is(err, convert.ErrChanged) && o.Force && d.Restored() {
		if err := d.Discard(); err != nil {
			return nil, err
		}
		result, err = part.Run(ctx, c.Destination, o)
	}
	return result, err
}
