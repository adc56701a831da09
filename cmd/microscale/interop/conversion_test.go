package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// BenchmarkConversion converts 0.5 G weights from BF16 to MXFP4 on one thread, here and with llama.cpp,
// from files in the system's cache to files, in memory and on a disk. All take turns; a rate is that of the
// median, so use -benchtime 5x or more. Run it under taskset -c 0 to give all of them one processor.
//
//   - ours, ours.gguf: a Hugging Face directory and a GGUF file, with the error and checksums of all weights,
//     until the files are on the disk
//   - llama.cpp: llama_model_quantize, which does not wait for the disk; llama.cpp-synced waits, as ours does
//   - copy: read the source and write as many bytes as the result has, until they are on the disk
func BenchmarkConversion(b *testing.B) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(b, "%s does not run on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	for _, storage := range []struct{ name, folder string }{{"memory", "/dev/shm"}, {"disk", "/var/tmp"}} {
		b.Run("storage="+storage.name, func(b *testing.B) {
			dir, err := os.MkdirTemp(storage.folder, "conversion")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(dir) })
			benchmarkConversion(b, dir)
		})
	}
}

func benchmarkConversion(b *testing.B, dir string) {
	source, directory := filepath.Join(dir, "source.gguf"), filepath.Join(dir, "source")
	theirs := startConverter(b, source, filepath.Join(dir, "theirs.gguf"))
	convertOnce(b, source, directory, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanDequantize(b.Context(), m, safetensors.BF16)
	})
	info, err := os.Stat(source)
	if err != nil {
		b.Fatal(err)
	}
	ours := func(name, convention string) float64 {
		dst := filepath.Join(dir, name)
		if err := os.RemoveAll(dst); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		convertOnce(b, directory, dst, func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanQuantize(b.Context(), m, convert.QuantizeOptions{Convention: convention,
				Quantizer: quant.Quantizer{Format: quant.MXFP4}})
		})
		return time.Since(start).Seconds()
	}
	seconds := map[string][]float64{}
	keep := func(name string, t float64) { seconds[name] = append(seconds[name], t) }
	for b.Loop() {
		quantized, synced := theirs()
		keep("llama.cpp", quantized)
		keep("llama.cpp-synced", synced)
		keep("ours", ours("ours", "compressed-tensors"))
		keep("ours.gguf", ours("ours.gguf", "gguf"))
		keep("copy", copyShare(b, source, filepath.Join(dir, "copy"), quant.MXFP4.BitsPerElement()/16))
	}
	for name, t := range seconds {
		slices.Sort(t)
		b.ReportMetric(float64(info.Size())/1e9/t[len(t)/2], name+"-GB/s")
	}
	b.ReportMetric(0, "ns/op")
}

// copyShare reads source in parts as conversions do, writes a share of each to a new file, waits until
// that is on the disk, and returns the seconds.
func copyShare(b *testing.B, source, result string, share float64) float64 {
	b.Helper()
	if err := os.RemoveAll(result); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	in, err := os.Open(source)
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(result)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	part, written := make([]byte, 1<<18), make([]byte, 0, 1<<20)
	for err == nil {
		var n int
		if n, err = in.Read(part); err != nil {
			break
		}
		written = append(written, part[:int(share*float64(n))]...)
		if len(written)+len(part) > cap(written) || n < len(part) {
			_, err = out.Write(written)
			written = written[:0]
		}
	}
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	if _, err := out.Write(written); err != nil {
		b.Fatal(err)
	}
	if err := out.Sync(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds()
}

// convertOnce runs a plan for source on one thread.
func convertOnce(b *testing.B, source, dst string, plan func(*hf.Checkpoint) (*convert.Plan, error)) {
	b.Helper()
	m, err := convert.Open(source)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	p, err := plan(m)
	if err == nil {
		_, err = p.Run(context.Background(), dst, convert.RunOptions{Threads: 1})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// startConverter starts convert_libllama.py, which writes source. The function that it returns converts
// source to result and returns the seconds that this took, and those until result was on the disk.
func startConverter(b *testing.B, source, result string) func() (quantized, synced float64) {
	b.Helper()
	to, from := startLibllama(b, "convert_libllama.py", source, result)
	return func() (quantized, synced float64) {
		if _, err := io.WriteString(to, "\n"); err != nil {
			b.Fatal(err)
		}
		line, err := from.ReadString('\n')
		if _, bad := fmt.Sscan(line, &quantized, &synced); err != nil || bad != nil {
			b.Fatalf("convert_libllama.py: %q %v", line, cmp.Or(err, bad))
		}
		return quantized, synced
	}
}
