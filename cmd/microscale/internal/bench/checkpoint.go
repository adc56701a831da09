package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// A Checkpoint is a synthetic BF16 checkpoint to quantize. Its conversions and a copy of its
// files are measured from disk to disk.
type Checkpoint struct {
	Dir      string // holds the checkpoint and one result at a time; must be empty
	Size     float64
	Formats  []quant.Format
	Rounds   int // repetitions of each work, in turns; the fastest counts
	Threads  int
	Progress func(op, format string) // called after each work, if not nil
}

// A FileResult is the result of work on files.
type FileResult struct {
	Result
	Processor float64 // processor seconds; 0 if unknown
	Resident  int64   // peak resident memory in bytes; 0 if unknown
}

// Measure returns the results of the formats and then that of the copy. The rate counts the
// bytes of the source. The limit is the rate of the copy. Work ends when its data is on the
// disk.
func (c Checkpoint) Measure(ctx context.Context) ([]FileResult, error) {
	src, dst := filepath.Join(c.Dir, "src"), filepath.Join(c.Dir, "dst")
	bytes, err := writeCheckpoint(ctx, src, c.Size)
	if err != nil {
		return nil, err
	}
	duplicate := func() error { return copyFiles(ctx, src, dst) }
	if _, err := c.work(dst, "warming", "", bytes, duplicate); err != nil {
		return nil, err
	}
	results := make([]FileResult, len(c.Formats)+1)
	keep := func(i int, r FileResult) {
		if best := results[i]; best.Time.Runs == 0 || r.Time.Median < best.Time.Median {
			r.Resident = max(r.Resident, best.Resident)
			results[i] = r
		}
		results[i].Time.Runs = c.Rounds
	}
	for range c.Rounds {
		copied, err := c.work(dst, "copy", "", bytes, duplicate)
		if err != nil {
			return nil, err
		}
		copied.Kernel = "the system's copy"
		keep(len(c.Formats), copied)
		for i, f := range c.Formats {
			r, err := c.work(dst, "checkpoint", f.Name, bytes, func() error { return c.quantize(ctx, src, dst, f) })
			if err != nil {
				return nil, err
			}
			keep(i, r)
		}
	}
	for i := range c.Formats {
		results[i].Limit, results[i].LimitBy = results[len(c.Formats)].Rate(), "a copy of the files"
	}
	return results, nil
}

// work measures work that creates dst, and removes dst.
func (c Checkpoint) work(dst, op, block string, bytes int64, do func() error) (FileResult, error) {
	host.ResetResident()
	start, before := time.Now(), cpu.Seconds()
	err := do()
	r := Result{
		Op: op, Format: block, Source: format.BF16.Name, Threads: c.Threads, Kernel: cpu.Best().Vectors().String(), Work: float64(bytes),
		Unit: Bytes, Limit: math.NaN(),
		Time: Sample{Median: time.Since(start).Seconds(), Deviation: math.NaN(), Runs: 1},
	}
	result := FileResult{r, cpu.Seconds() - before, host.PeakResident()}
	if err == nil {
		err = os.RemoveAll(dst)
	}
	if err == nil && c.Progress != nil {
		c.Progress(op, block)
	}
	return result, err
}

func (c Checkpoint) quantize(ctx context.Context, src, dst string, f quant.Format) error {
	source, err := hf.Open(src)
	if err != nil {
		return err
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(ctx, source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}})
	if err != nil {
		return err
	}
	_, err = plan.Run(ctx, dst, convert.RunOptions{Threads: c.Threads})
	return err
}

// copyFiles copies the files of a directory, as cp does, and syncs them.
func copyFiles(ctx context.Context, src, dst string) error {
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dst, 0o777); err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyFile(ctx, filepath.Join(src, e.Name()), filepath.Join(dst, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies one file, by the system if it can, and syncs it.
func copyFile(ctx context.Context, src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	const part = 64 << 20 // takes far less than a second, so that cancellation is prompt
	for err == nil {
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(out, in, part)
		}
	}
	if errors.Is(err, io.EOF) {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
