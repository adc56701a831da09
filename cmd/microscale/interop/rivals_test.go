package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// rivals are operations that other programs have too. For formats that none of them multiplies
// on a CPU, the rival is the BF16 product that would be used instead.
var rivals = []struct {
	work    string
	format  quant.Format
	m, n, k int // quantize: m×k of float32; multiply: m×k by n×k
	by      []string
}{
	{"quantize", quant.FP8Tensor, 8192, 0, 8192, []string{"torch"}},
	{"quantize", quant.MXFP8, 8192, 0, 8192, []string{"torchao"}},
	{"quantize", quant.MXFP4, 8192, 0, 8192, []string{"torchao", "ggml"}},
	{"quantize", quant.NVFP4, 8192, 0, 8192, []string{"torchao", "ggml"}},
	{"multiply", quant.F32, 2048, 2048, 2048, []string{"torch"}},
	{"multiply", quant.BF16, 2048, 2048, 2048, []string{"torch"}},
	{"multiply", quant.MXINT8, 2048, 2048, 2048, []string{"torch"}},
	{"multiply", quant.MXFP8, 2048, 2048, 2048, nil},
	{"multiply", quant.MXFP4, 2048, 2048, 2048, []string{"ik_llama.cpp"}},
	{"multiply", quant.NVFP4, 2048, 2048, 2048, nil},
	{"multiply", quant.F32, 1, 16384, 4096, []string{"torch"}},
	{"multiply", quant.BF16, 1, 16384, 4096, []string{"torch"}},
	{"multiply", quant.MXFP8, 1, 16384, 4096, nil},
	{"multiply", quant.MXFP4, 1, 16384, 4096, []string{"ik_llama.cpp"}},
	{"multiply", quant.NVFP4, 1, 16384, 4096, nil},
}

// interpreters start the programs of rivals.py.
var interpreters = map[string]func(b *testing.B) string{
	"torch":   func(b *testing.B) string { return rivalTorch(b) },
	"torchao": func(b *testing.B) string { return rivalTorch(b) },
	"ggml":    func(b *testing.B) string { return built(b, llamaCPPPackage) },
	// The wheel is built for AVX2, without the AVX-512 kernels of a build for this processor.
	"ik_llama.cpp": func(b *testing.B) string { return python(b, "ik-llama-cpp-python==0.1.5", "numpy==2.4.6") },
}

func rivalTorch(b *testing.B) string {
	if !*installTorch {
		skipf(b, "PyTorch and torchao are not timed: -torch installs them, seven gigabytes")
	}
	return over(b, python(b, "torch==2.15.0", "numpy==2.4.6"), "torchao==0.18.0")
}

// BenchmarkRivals times this project and others on one thread. The others use their own rules
// and allocate each result; ours reuses the destination. With -count they alternate.
func BenchmarkRivals(b *testing.B) {
	for _, r := range rivals {
		name := fmt.Sprintf("work=%s/format=%s/m=%d/n=%d/k=%d", r.work, r.format, r.m, r.n, r.k)
		rate := func(b *testing.B, times int) {
			if r.work == "quantize" {
				b.SetBytes(int64(4 * r.m * r.k))
			} else {
				b.ReportMetric(2*float64(r.m)*float64(r.n)*float64(r.k)*float64(times)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			}
		}
		b.Run(name+"/by=microscale", func(b *testing.B) {
			do := ours(b, r.work, r.format, r.m, r.n, r.k)
			b.ResetTimer()
			for i := range b.N {
				do(i)
			}
			rate(b, b.N)
		})
		for _, by := range r.by {
			b.Run(name+"/by="+by, func(b *testing.B) {
				p := startRival(b, interpreters[by](b))
				p.ask(b, map[string]any{"by": by, "work": r.work, "format": r.format.Name, "m": r.m, "n": r.n, "k": r.k})
				b.ResetTimer()
				p.ask(b, map[string]any{"times": b.N})
				b.StopTimer()
				rate(b, b.N)
			})
		}
	}
}

// ours prepares the operation and runs it once.
func ours(b *testing.B, work string, f quant.Format, m, n, k int) (do func(i int)) {
	b.Helper()
	q, activations := quant.Quantizer{Format: f}, quant.Quantizer{Format: f}
	if m == 1 && f.Scaled() {
		activations.Format = quant.BF16
	}
	a := normal(m, k)
	if work == "quantize" {
		with := quant.With{Threads: 1}
		if f.Global { // computed beforehand, as in the others
			amax := quant.Amax(a, 1)
			with.Amax = &amax
		}
		do = func(int) {
			t, err := q.Rowwise(a, with)
			if err != nil {
				b.Fatal(err)
			}
			with.Into = t
		}
	} else {
		const fromMemory = 256e6 // bytes of weights, which take turns where m is small
		copies := 1
		if m == 1 {
			copies = 1 + int(fromMemory/(f.BitsPerElement()/8*float64(n*k)))
		}
		x := quantized(b, activations, a)
		weights := make([]*quant.Tensor, copies)
		for i := range weights {
			weights[i] = quantized(b, q, normal(n, k))
		}
		c := tensor.New(m, n)
		do = func(i int) {
			if err := gemm.Mul(c, x, weights[i%copies], gemm.Options{Threads: 1}); err != nil {
				b.Fatal(err)
			}
		}
	}
	do(0)
	return do
}

func quantized(b *testing.B, q quant.Quantizer, x tensor.Dense) *quant.Tensor {
	b.Helper()
	t, err := q.Rowwise(x, quant.With{})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// normal returns a matrix of normally distributed values.
func normal(rows, cols int) tensor.Dense {
	r := rand.New(rand.NewPCG(1, 1))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	return x
}

// A rival is a running rivals.py.
type rival struct {
	to   io.Writer
	from *bufio.Reader
}

func startRival(b *testing.B, interpreter string) *rival {
	b.Helper()
	to, from := startScript(b, interpreter, "rivals.py")
	return &rival{to: to, from: from}
}

// startScript starts a Python program that answers lines with lines until its standard input ends.
func startScript(b *testing.B, interpreter string, args ...string) (to io.Writer, from *bufio.Reader) {
	b.Helper()
	cmd := exec.Command(interpreter, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return in, bufio.NewReader(out)
}

// startLibllama is startScript for a program that calls llama.cpp's libraries, whose folder is its first
// argument. It returns when the program is ready.
func startLibllama(b *testing.B, program string, args ...string) (to io.Writer, from *bufio.Reader) {
	b.Helper()
	libraries := filepath.Join(npmPackage(b, llamaLibraries), "bins", "linux-x64")
	if *kernelTier != "" {
		libraries = librariesOf(b, libraries, *kernelTier)
	}
	to, from = startScript(b, python(b, "gguf==0.19.0", "numpy==2.4.6"), append([]string{program, libraries}, args...)...)
	if line, err := from.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		b.Fatalf("%s: %q %v", program, line, err)
	}
	return to, from
}

var kernelTier = flag.String("kernel", "", "use the kernels of tier `NAME` in benchmarks beside llama.cpp, and its library for them")

// llamaSets names llama.cpp's libraries by our tiers of the same instructions.
var llamaSets = map[cpu.Tier]string{
	cpu.AVX2: "haswell", cpu.AVXVNNI: "alderlake", cpu.AVX512F: "skylakex", cpu.AVX512VNNI: "cascadelake", cpu.AVX512VBMI: "icelake",
	cpu.AVX512: "zen4", cpu.AMX: "sapphirerapids",
}

// librariesOf restricts the kernels of this process to a tier until b ends, and returns a folder of llama.cpp's libraries
// that has only that of the same instructions.
func librariesOf(b *testing.B, libraries, name string) string {
	b.Helper()
	tier, err := cpu.ParseTier(name)
	if err == nil {
		b.Cleanup(func() { _ = cpu.Force(cpu.Tiers()[0]) })
		err = cpu.Force(tier)
	}
	files, more := filepath.Glob(filepath.Join(libraries, "*.so"))
	if err = errors.Join(err, more); err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for _, file := range files {
		set, isSet := strings.CutPrefix(filepath.Base(file), "libggml-cpu-")
		if isSet && set != llamaSets[tier]+".so" {
			continue
		}
		if err := os.Symlink(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// ask sends a request to the rival.
func (r *rival) ask(b *testing.B, request map[string]any) {
	b.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fprintf(r.to, "%s\n", line); err != nil {
		b.Fatal(err)
	}
	answer, err := r.from.ReadString('\n')
	if answer = strings.TrimSpace(answer); answer != "done" {
		b.Fatalf("%s %v", answer, err)
	}
}
