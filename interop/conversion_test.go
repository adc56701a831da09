package interop

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// BenchmarkConversion converts 0.5 G weights from BF16 to MXFP4 on one thread, here and with llama.cpp,
// from files to files in the system's cache. They take turns; a rate is that of the fastest
// conversion. Ours also measures the error of every weight, and waits until the files are on disk.
func BenchmarkConversion(b *testing.B) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(b, "%s does not run on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	dir := b.TempDir()
	source, directory := filepath.Join(dir, "source.gguf"), filepath.Join(dir, "source")
	theirs := startConverter(b, source, filepath.Join(dir, "theirs.gguf"))
	convertOnce(b, source, directory, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanDequantize(b.Context(), m, safetensors.BF16)
	})
	info, err := os.Stat(source)
	if err != nil {
		b.Fatal(err)
	}

	ours := map[string]convert.QuantizeOptions{"ours.gguf": {Convention: "gguf"}, "ours": {Convention: "compressed-tensors"}}
	fastest := map[string]float64{}
	keep := func(name string, seconds float64) {
		if before, ok := fastest[name]; !ok || seconds < before {
			fastest[name] = seconds
		}
	}
	for b.Loop() {
		keep("llama.cpp", theirs())
		for name, o := range ours {
			o.Quantizer = quant.Quantizer{Format: quant.MXFP4}
			dst := filepath.Join(dir, name)
			if err := os.RemoveAll(dst); err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			convertOnce(b, directory, dst, func(m *hf.Checkpoint) (*convert.Plan, error) {
				return convert.PlanQuantize(b.Context(), m, o)
			})
			keep(name, time.Since(start).Seconds())
		}
	}
	for name, seconds := range fastest {
		b.ReportMetric(float64(info.Size())/1e9/seconds, name+"-GB/s")
	}
	b.ReportMetric(0, "ns/op")
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
// source to result and returns the seconds that this took.
func startConverter(b *testing.B, source, result string) func() float64 {
	b.Helper()
	to, from := startLibllama(b, "convert_libllama.py", source, result)
	return func() float64 {
		if _, err := io.WriteString(to, "\n"); err != nil {
			b.Fatal(err)
		}
		line, err := from.ReadString('\n')
		seconds, badNumber := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err := cmp.Or(err, badNumber); err != nil {
			b.Fatalf("convert_libllama.py: %q %v", line, err)
		}
		return seconds
	}
}
