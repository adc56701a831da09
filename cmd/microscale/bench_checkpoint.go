package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

func benchCheckpointCommand() *cobra.Command {
	cmd := benchWork("checkpoint", "a checkpoint to block formats, beside a copy of it", `Makes a BF16 checkpoint, copies it, and quantizes it to each format, all on the
same disk, which needs twice the size. The rate counts the bytes of the source;
the limit is that of the copy. Both end when the data is on the disk. Of several
--rounds, which take turns, the fastest of each work counts. Processor is the
time of processors, which what else runs disturbs least; memory is the most that
was resident.`)
	cmd.Example = `  microscale bench checkpoint --size 4
  microscale bench checkpoint --size 1 --formats nvfp4 --dir DIR --json`
	size := cmd.Flags().Float64("size", 4, "`GB` of the checkpoint")
	formats := formatList{}
	if err := formats.Set(strings.Join([]string{quant.MXFP8.Name, quant.MXFP4.Name, quant.NVFP4.Name}, ",")); err != nil {
		panic(err) // rows of the table
	}
	cmd.Flags().Var(&formats, "formats", "block formats `NAMES`, with commas between them")
	rounds := cmd.Flags().Uint("rounds", 1, "do each work `N` times")
	dir := cmd.Flags().String("dir", "", "`FOLDER` to work in (default the system's for temporary files); nothing stays there")
	b := addBench(cmd, benchDefaults{all: "as many as the process has", budget: time.Hour, spent: "(each work is done --rounds times)"})
	_ = cmd.Flags().MarkHidden("budget") // every work is done to its end, however long
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		if !(*size > 0 && *size < 1e6) {
			return misuse("--size %v: give a number of GB", *size)
		}
		if *rounds == 0 {
			return misuse("--rounds 0: give a number from 1 on")
		}
		place := cmp.Or(*dir, os.TempDir())
		if need, free := 2**size*1e9, freeBytes(place); need > free {
			return fmt.Errorf("a checkpoint and a copy of it take %s, and %s has room for %s: give a smaller --size, or another --dir", bytesText(need), place, bytesText(free))
		}
		if err := b.begin(); err != nil {
			return err
		}
		threads := b.Threads()
		b.Close() // its threads are pinned, which those of a conversion are not
		folder, err := os.MkdirTemp(*dir, "microscale-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		c := checkpointBench{cmd: cmd, folder: folder, threads: threads}
		results, err := c.run(*size*1e9, formats.formats, int(*rounds))
		if err != nil {
			return interrupted(err, "nothing was measured to the end, and nothing stays in "+filepath.Dir(folder))
		}
		out := cmd.OutOrStdout()
		if *b.asJSON {
			docs := make([]checkpointDocument, len(results))
			for i, r := range results {
				docs[i] = checkpointDocument{benchDocuments([]bench.Result{r.Result})[0], number(r.Time.Median / results[len(results)-1].Time.Median), number(r.processor), r.resident}
			}
			return printJSON(out, docs)
		}
		return printCheckpointBench(out, results)
	})
	return cmd
}

// A checkpointDocument is one result as JSON.
type checkpointDocument struct {
	benchDocument
	Ratio     number `json:"ratio"`     // of the time to that of the copy
	Processor number `json:"processor"` // seconds of processors, 0 where the system does not say
	Resident  int64  `json:"resident"`  // the most bytes of memory, 0 where the system does not say
}

// A checkpointResult is one work, the processors' time and the most memory that it took.
type checkpointResult struct {
	bench.Result
	processor float64
	resident  int64
}

type checkpointBench struct {
	cmd     *cobra.Command
	folder  string
	threads int
}

// run makes the checkpoint and returns the results of the formats, then that of the
// copy: of each the fastest round.
func (c *checkpointBench) run(size float64, formats []quant.Format, rounds int) ([]checkpointResult, error) {
	src, dst := filepath.Join(c.folder, "src"), filepath.Join(c.folder, "dst")
	ctx := c.cmd.Context()
	bytes, err := makeCheckpoint(ctx, src, size)
	if err != nil {
		return nil, err
	}
	if _, err := c.work(dst, "warming", "", bytes, func() error { return copyCheckpoint(ctx, src, dst) }); err != nil {
		return nil, err
	}
	results := make([]checkpointResult, len(formats)+1)
	keep := func(i int, r checkpointResult) {
		if best := results[i]; best.Time.Runs == 0 || r.Time.Median < best.Time.Median {
			r.resident = max(r.resident, best.resident)
			results[i] = r
		}
		results[i].Time.Runs = rounds
	}
	for range rounds {
		copied, err := c.work(dst, "copy", "", bytes, func() error { return copyCheckpoint(ctx, src, dst) })
		if err != nil {
			return nil, err
		}
		copied.Kernel = "the system's copy"
		keep(len(formats), copied)
		for i, f := range formats {
			r, err := c.work(dst, "checkpoint", f.Name, bytes, func() error { return c.quantize(src, dst, f) })
			if err != nil {
				return nil, err
			}
			keep(i, r)
		}
	}
	for i := range formats {
		results[i].Limit, results[i].LimitBy = results[len(formats)].Rate(), "a copy of the files"
	}
	return results, nil
}

// work measures one work, which makes dst, and removes that.
func (c *checkpointBench) work(dst, op, block string, bytes int64, do func() error) (checkpointResult, error) {
	resetResident()
	start, before := time.Now(), processorSeconds()
	err := do()
	r := bench.Result{Op: op, Format: block, Source: format.BF16.Name, Threads: c.threads, Kernel: cpu.Best().Vectors().String(), Work: float64(bytes), Unit: bench.Bytes, Limit: math.NaN(),
		Time: bench.Sample{Median: time.Since(start).Seconds(), Deviation: math.NaN(), Runs: 1}}
	result := checkpointResult{r, processorSeconds() - before, resident()}
	if err == nil {
		err = os.RemoveAll(dst)
		fmt.Fprintf(c.cmd.ErrOrStderr(), "microscale: %s\n", strings.TrimSpace("measured "+op+" "+block))
	}
	return result, err
}

func (c *checkpointBench) quantize(src, dst string, f quant.Format) error {
	source, err := hf.Open(src)
	if err != nil {
		return err
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(checkpoint.Read(source), convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}})
	if err != nil {
		return err
	}
	_, err = plan.Run(c.cmd.Context(), dst, convert.RunOptions{Threads: c.threads})
	return err
}

// makeCheckpoint writes a checkpoint of layers as a small Llama has them, of about
// so many bytes and normally distributed values, in files of about a gigabyte.
func makeCheckpoint(ctx context.Context, dir string, size float64) (bytes int64, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(`{"torch_dtype": "bfloat16"}`), 0o666); err != nil {
		return 0, err
	}
	hidden := int64(2048)
	for hidden > 64 && float64(hidden*hidden*29) > size { // a layer is 14.5 squares of two bytes
		hidden /= 2
	}
	layer := float64(hidden*hidden) * 29
	layers := max(1, int(math.Round(size/layer)))
	files := max(1, int(math.Round(size/1e9)))
	pattern := make([]byte, 2*65521)
	values, random := make([]float32, len(pattern)/2), rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = float32(0.02 * random.NormFloat64())
	}
	if err := tensor.ToBytes(pattern, values, format.BF16); err != nil {
		return 0, err
	}
	pattern = []byte(strings.Repeat(string(pattern), 32))
	index := safetensors.Index{WeightMap: map[string]string{}}
	for file := range files {
		name := safetensors.ShardName(file+1, files)
		var specs []safetensors.Spec
		for l := layers * file / files; l < layers*(file+1)/files; l++ {
			for _, w := range []struct {
				name       string
				rows, cols int64
			}{
				{"self_attn.q_proj", 4, 4}, {"self_attn.k_proj", 1, 4}, {"self_attn.v_proj", 1, 4}, {"self_attn.o_proj", 4, 4},
				{"mlp.gate_proj", 16, 4}, {"mlp.up_proj", 16, 4}, {"mlp.down_proj", 4, 16},
			} {
				spec := safetensors.Spec{Name: fmt.Sprintf("model.layers.%d.%s.weight", l, w.name), Dtype: safetensors.BF16, Shape: []int64{w.rows * hidden / 4, w.cols * hidden / 4}}
				specs = append(specs, spec)
				index.WeightMap[spec.Name] = name
				bytes += 2 * spec.Shape[0] * spec.Shape[1]
			}
		}
		if err := writePattern(ctx, filepath.Join(dir, name), specs, pattern); err != nil {
			return 0, err
		}
	}
	if files > 1 {
		data, err := index.Marshal()
		if err != nil {
			return 0, err
		}
		err = os.WriteFile(filepath.Join(dir, safetensors.IndexName), data, 0o666)
		return bytes, err
	}
	return bytes, nil
}

// writePattern writes a file whose tensors repeat the pattern.
func writePattern(ctx context.Context, path string, specs []safetensors.Spec, pattern []byte) error {
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		return err
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		return err
	}
	for _, s := range specs {
		n := 2 * s.Shape[0] * s.Shape[1]
		for at := int64(0); at < n; at += int64(len(pattern)) {
			err := ctx.Err()
			if err == nil {
				err = w.WriteTensorAt(s.Name, pattern[:min(int64(len(pattern)), n-at)], at)
			}
			if err != nil {
				_ = w.Abort() // the folder goes away
				return err
			}
		}
	}
	return w.Close()
}

// copyCheckpoint copies the files of a directory as cp does, and waits until they
// are on the disk.
func copyCheckpoint(ctx context.Context, src, dst string) error {
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dst, 0o777); err != nil {
		return err
	}
	for _, e := range entries {
		in, err := os.Open(filepath.Join(src, e.Name()))
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(dst, e.Name()))
		if err == nil {
			err = copyAll(ctx, out, in)
		}
		if err == nil {
			err = out.Sync()
		}
		if err == nil {
			err = out.Close()
		}
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyAll copies what is left of a file, by the system itself where it can, and ends
// with the context.
func copyAll(ctx context.Context, dst, src *os.File) error {
	const part = 64 << 20 // which takes far less than a second
	for ctx.Err() == nil {
		if _, err := io.CopyN(dst, src, part); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func printCheckpointBench(w io.Writer, results []checkpointResult) error {
	copied := results[len(results)-1]
	t := newTable(column{"", false}, column{"time", true}, column{"of the source", true}, column{"times the copy", true}, column{"processor", true}, column{"memory", true})
	for _, r := range results {
		name := r.Format
		if name == "" {
			name = r.Op
		}
		memory, processor := "-", "-"
		if r.resident > 0 {
			memory = bytesText(float64(r.resident))
		}
		if r.processor > 0 {
			processor = secondsText(r.processor)
		}
		t.AppendRow(table.Row{name, secondsText(r.Time.Median), threeDigits(r.Rate()) + " GB/s", threeDigits(r.Time.Median / copied.Time.Median), processor, memory})
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s of BF16, %s\n", t.Render(), bytesText(copied.Work), countText(copied.Threads, "thread"))
	return err
}
