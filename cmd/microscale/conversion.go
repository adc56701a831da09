package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

const (
	forceUsage = "replace the checkpoint at DST when the run completes; a crash during the replacement leaves the old one at " +
		"DST.microscale-replaced, and the same command restores it"
	resumeUsage = "resume an interrupted run to DST, or start a new one; keep what is done if the run fails"
	eachUsage   = "print a row for each weight, not one for all layers"
)

// runFlags are the flags shared by quantize, dequantize and convert.
type runFlags struct {
	options      convert.RunOptions
	shard        *flags.ShardFlag
	split        *flags.SplitFlag // nil: the command has none
	dryRun       *bool
	each, asJSON *bool
	threads      *uint

	remote       *store.Destination // that the result is uploaded to; nil: none
	uploaded     bool
	distillation *distillation // that follows; nil: none
	reads        []string      // files of a further checkpoint
}

// destinationHelp describes a DST that is not local.
const destinationHelp = `

DST may be s3://BUCKET/FOLDER or gs://BUCKET/FOLDER. The result is then written
to NAME-HASH.microscale-staged in the working directory, uploaded, config.json
and index last, and removed: about a file of weights at a time, while the next
one is made. After an upload that ended early, repeat the command with --resume.`

func addRunFlags(cmd *cobra.Command) *runFlags {
	f := &runFlags{}
	cmd.Long += destinationHelp
	cmd.Flags().BoolVar(&f.options.Force, "force", false, forceUsage)
	cmd.Flags().BoolVar(&f.options.Resume, "resume", false, resumeUsage)
	f.shard = flags.AddShard(cmd)
	f.dryRun = cmd.Flags().Bool("dry-run", false, "read the headers and print the plan, write nothing; with --each or --json, print the "+
		"offset of every tensor")
	f.each = cmd.Flags().Bool("each", false, eachUsage)
	f.asJSON = addJSON(cmd)
	f.threads = flags.AddThreads(cmd)
	return f
}

func addJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print one JSON document")
}

// run runs or, with --dry-run, prints the plan of c. verb is the progress label.
func (f *runFlags) run(cmd *cobra.Command, verb string, c *conversion.Conversion) error {
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	var err error
	if c.Plan, err = f.split.Plan(c.Plan); err != nil {
		return err
	}
	if c.Plan, err = f.shard.Plan(stderr, c.Plan); err != nil {
		return err
	}
	f.spare(cmd, c.Plan)
	if *f.dryRun {
		if err := c.Plan.Admit(c.Destination, f.options.Force); err != nil {
			return err
		}
		if f.remote != nil {
			c.Destination = f.remote.String()
		}
		conversion.PrintLeft(stderr, c.Plan.Source())
		return c.PrintPlan(out, *f.each, *f.asJSON)
	}
	if done, err := f.stored(cmd, c); done || err != nil {
		return err
	}
	_, read := c.Plan.SourceBytes()
	m := show.NewMeter(stderr, verb, read)
	f.options.Progress, f.options.Threads = reportTo(m), int(*f.threads)
	start := time.Now()
	switch {
	case f.distillation != nil:
		err = f.distillation.run(cmd, c, f.options, m.Close)
	case f.divided(cmd, c.Plan):
		err = f.runParts(cmd, c)
		m.Close()
	default:
		c.Result, err = c.Plan.Run(cmd.Context(), c.Destination, f.options)
		m.Close()
	}
	if err != nil {
		left := "nothing was written to " + c.Destination
		switch {
		case f.options.Resume || f.distillation != nil:
			left = "repeat the command to resume"
		case f.divided(cmd, c.Plan):
			left = "repeat the command with --resume"
		}
		return show.Interrupted(err, left)
	}
	c.Seconds = time.Since(start).Seconds()
	if err := f.upload(cmd, c); err != nil {
		return err
	}
	show.PrintWarnings(stderr, c.Result.Warnings)
	conversion.PrintLeft(stderr, c.Plan.Source())
	defer conversion.WarnNonFinite(stderr, c.Result.Tensors, c.Source) // below the table
	return c.Print(out, *f.each, *f.asJSON)
}

// divided reports whether the result is uploaded in parts, about one for each file of weights: not if the run has one, or
// needs a statistic of a text for all of them.
func (f *runFlags) divided(cmd *cobra.Command, plan *convert.Plan) bool {
	_, workers := f.shard.Worker()
	files := plan.Files()
	return f.remote != nil && workers == 0 && len(files) > 1 && !f.remote.Single() && !cmd.Flags().Changed("text") &&
		!cmd.Flags().Changed("activations") &&
		!slices.ContainsFunc(files, func(f convert.File) bool { return !strings.HasSuffix(f.Name, safetensors.Suffix) })
}

// runParts runs the plan of c in parts.
func (f *runFlags) runParts(cmd *cobra.Command, c *conversion.Conversion) (err error) {
	end := func() {}
	defer func() { end() }()
	c.Result, err = f.remote.Run(cmd.Context(), c.Plan, c.Destination, f.options, func() func(done, total int64) {
		upload := show.NewMeter(cmd.ErrOrStderr(), "uploading the last part", 0)
		end = upload.Close
		return upload.Report
	})
	if err == nil {
		f.uploaded, c.Uploaded, c.Destination = true, true, f.remote.String()
	}
	return err
}

// fits returns an error if the object store has files that the result of the plan has not, or DST is a file of the source. complete: it
// has all of them, and the run may end with that.
func (f *runFlags) fits(plan *convert.Plan) (complete bool, err error) {
	if f.remote == nil {
		return false, nil
	}
	if file := plan.Source().GGUF; file != nil {
		for _, part := range file.Paths() {
			if err := f.remote.Reads(part); err != nil {
				return false, err
			}
		}
	}
	var names []string
	for _, file := range plan.Files() {
		names = append(names, file.Name)
	}
	for _, other := range plan.Companions() {
		names = append(names, other.Name)
	}
	if f.remote.Single() {
		names = []string{""}
	}
	complete, err = f.remote.Fits(names)
	_, workers := f.shard.Worker()
	return complete && f.options.Resume && !f.options.Force && workers == 0, err
}

// stored reports whether the object store has the result of c, which it then prints.
func (f *runFlags) stored(cmd *cobra.Command, c *conversion.Conversion) (done bool, err error) {
	complete, err := f.fits(c.Plan)
	if err != nil || !complete {
		return false, err
	}
	_, err = os.Lstat(f.remote.Stage())
	staged := err == nil
	if staged && !f.divided(cmd, c.Plan) { // the run compares it, and uploads what the store lacks
		return false, nil
	}
	found, err := store.Open(cmd.Context(), f.remote.String())
	if err != nil {
		return false, err
	}
	_, read := c.Plan.SourceBytes()
	m := show.NewMeter(cmd.ErrOrStderr(), "comparing the source", read)
	err = c.Plan.Made(cmd.Context(), found, convert.RunOptions{Threads: int(*f.threads), Progress: reportTo(m)})
	if m.Close(); errors.Is(err, convert.ErrChanged) {
		err = fmt.Errorf("%w: use --force to replace it, or another DST", err)
	}
	if err := errors.Join(err, found.Close()); err != nil {
		return false, err
	}
	f.uploaded = !staged // a stage may be of another run
	c.Found, c.Destination, c.Result = true, f.remote.String(), &convert.Result{Finished: true}
	return true, c.Print(cmd.OutOrStdout(), *f.each, *f.asJSON)
}

// staged runs the work of a command whose DST may be in an object store. The command then writes a local checkpoint,
// the stage, which run uploads. If the work or the upload ends early, --resume continues with the stage.
func (f *runFlags) staged(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if !store.Named(args[1]) {
			if err := flags.OnDisk("DST", args[1]); err != nil {
				return err
			}
			return work(cmd, args)
		}
		d, err := store.OpenDestination(cmd.Context(), args[1])
		if err != nil {
			return err
		}
		d.Force, d.Resume = f.options.Force, f.options.Resume
		if err := cmp.Or(d.Reads(args[0]), d.SetWorker(f.shard.Worker())); err != nil {
			return err
		}
		err = d.Admit(cmd.Context())
		if err == nil && !*f.dryRun {
			err = d.Writable(cmd.Context())
		}
		if err != nil {
			return show.Interrupted(err, "nothing was written")
		}
		f.remote = d
		dir := filepath.Dir(d.Stage())
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		err = work(cmd, []string{args[0], d.Stage()})
		if err == nil && f.uploaded { // not by ranks that only collect statistics
			err = d.Discard()
		}
		_ = os.Remove(dir) // unless an interrupted run left files there
		return err
	}
}

// upload uploads the result to the object store that DST names, if it does.
func (f *runFlags) upload(cmd *cobra.Command, c *conversion.Conversion) error {
	if f.remote == nil || f.uploaded {
		return nil
	}
	m := show.NewMeter(cmd.ErrOrStderr(), "uploading", 0)
	err := f.remote.Upload(cmd.Context(), func(done, total int64) { m.Report(done, total) })
	m.Close()
	if err != nil {
		return show.Interrupted(fmt.Errorf("%w; the result is in %s", err, f.remote.Staged()), "repeat the command with --resume")
	}
	f.uploaded, c.Uploaded, c.Destination = true, true, f.remote.String()
	return nil
}

// spare tells a plan the files that the command reads beside the source, so that no run replaces them.
func (f *runFlags) spare(cmd *cobra.Command, plan *convert.Plan) {
	plan.Reads = slices.Clone(f.reads)
	for _, name := range []string{"calibration", "activations", "text", "plan"} {
		flag := cmd.Flags().Lookup(name)
		if flag == nil {
			continue
		}
		if info, err := os.Stat(flag.Value.String()); err == nil && info.Mode().IsRegular() { // others are names, or folders of texts
			plan.Reads = append(plan.Reads, flag.Value.String())
		}
	}
}

// reportTo returns a function that reports the progress of a job to m.
func reportTo(m *show.Meter) func(verify.Progress) {
	return func(p verify.Progress) { m.Report(p.Done, p.Total) }
}
