package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
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
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var before, total int64
	_, total = c.Plan.SourceBytes()
	o, warnings, resumed := f.options, []string(nil), false
	uploaded := make(chan error, 1)
	uploaded <- nil
	for _, file := range c.Plan.Files() {
		f.remote.Weights = append(f.remote.Weights, file.Name)
	}
	count := min(len(f.remote.Weights), mostParts)
	for i := range count {
		var last verify.Progress
		o.Progress = func(p verify.Progress) {
			last = p
			m.Report(before+p.Done, max(total, before+p.Total))
		}
		d, err := f.remote.Part(ctx, i, count)
		if err == nil {
			var part *convert.Plan
			if part, err = c.Plan.Worker(i, count); err == nil {
				result, err = part.Run(ctx, c.Destination, o)
			}
		}
		if err != nil {
			cancel()
			return nil, cmp.Or(err, <-uploaded) // not before the upload has ended
		}
		before += last.Total
		warnings, resumed = append(warnings, result.Warnings...), resumed || result.Resumed || result.Finished
		if err := <-uploaded; err != nil {
			return nil, err
		}
		go func() { uploaded <- cmp.Or(d.Upload(ctx, func(_, _ int64) {}), os.RemoveAll(d.Staged())) }()
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
