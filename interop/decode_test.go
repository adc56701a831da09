package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/quant"
)

// decodeTokens is the number of tokens that a run of BenchmarkDecode generates.
const decodeTokens = 64

// BenchmarkDecode generates tokens with models of random weights of the shape of Llama-3.2-1B, here
// and with llama.cpp, whose activations are 8-bit integers. With -count they take turns. "best" is of
// the fastest token, which other programs disturb least.
func BenchmarkDecode(b *testing.B) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(b, "%s does not run on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	for _, r := range []struct {
		ours   quant.Format
		theirs string
	}{{quant.MXFP4, "MXFP4"}, {quant.MXFP8, "Q8_0"}} {
		name := "format=" + r.ours.Name
		b.Run(name+"/by=llama.cpp/type="+r.theirs, func(b *testing.B) {
			p := startDecoder(b, r.theirs)
			perThreads(b, func(threads int) (total, fastest float64) {
				var answer struct{ Seconds, Fastest float64 }
				p.ask(b, map[string]int{"threads": threads, "tokens": decodeTokens}, &answer)
				return answer.Seconds, answer.Fastest
			})
		})
		for _, inputs := range []quant.Format{quant.BF16, quant.MXINT8} {
			b.Run(name+"/by=microscale/inputs="+inputs.Name, func(b *testing.B) {
				shape, err := bench.ParseShape("1B")
				if err != nil {
					b.Fatal(err)
				}
				dir, err := bench.WriteRandom(b.Context(), b.TempDir(), shape, r.ours, 0)
				if err != nil {
					b.Fatal(err)
				}
				m, err := decoder.Load(b.Context(), dir, decoder.LoadOptions{Inference: true, Inputs: inputs})
				if err != nil {
					b.Fatal(err)
				}
				perThreads(b, func(threads int) (total, fastest float64) { return decode(b, m, threads) })
			})
		}
	}
}

// perThreads measures generation with one and with two threads.
func perThreads(b *testing.B, generate func(threads int) (total, fastest float64)) {
	for threads := 1; threads <= 2; threads++ {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			generate(threads)
			var sum float64
			best := 1e9
			for b.Loop() {
				total, fastest := generate(threads)
				sum, best = sum+total, min(best, fastest)
			}
			b.ReportMetric(decodeTokens*float64(b.N)/sum, "tokens/s")
			b.ReportMetric(1/best, "best-tokens/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// decode generates tokens and returns the seconds of all, and of the fastest.
func decode(b *testing.B, m *decoder.Model, threads int) (total, fastest float64) {
	m.Inference.Threads = threads
	s, err := m.NewSession(decodeTokens)
	if err != nil {
		b.Fatal(err)
	}
	fastest = 1e9
	for i := range decodeTokens {
		start := time.Now()
		if _, err := s.Append(b.Context(), []int32{int32(i)}); err != nil {
			b.Fatal(err)
		}
		seconds := time.Since(start).Seconds()
		total, fastest = total+seconds, min(fastest, seconds)
	}
	return total, fastest
}

// A decoderProcess is decode_libllama.py at work.
type decoderProcess struct {
	to   io.Writer
	from *bufio.Reader
}

func startDecoder(b *testing.B, kind string) *decoderProcess {
	b.Helper()
	libraries := filepath.Join(npmPackage(b, llamaLibraries), "bins", "linux-x64")
	cmd := exec.Command(python(b, "gguf==0.19.0", "numpy==2.4.6"), "decode_libllama.py", libraries, filepath.Join(b.TempDir(), "model.gguf"), kind)
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = to.Close()
		_ = cmd.Wait()
	})
	p := &decoderProcess{to: to, from: bufio.NewReader(from)}
	if line, err := p.from.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		b.Fatalf("%q %v", line, err)
	}
	return p
}

func (p *decoderProcess) ask(b *testing.B, request, answer any) {
	b.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.to, "%s\n", line); err != nil {
		b.Fatal(err)
	}
	text, err := p.from.ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		b.Fatal(err)
	}
}
