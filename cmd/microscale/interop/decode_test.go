package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/quant"
)

// decodePhases are what BenchmarkDecode measures: tokens generated one by one, and a prompt.
var decodePhases = []struct {
	name         string
	tokens, step int
}{{"decode", 64, 1}, {"prompt", 512, 512}}

// BenchmarkDecode generates tokens and reads prompts with models of random weights of the shape of
// Llama-3.2-1B, here and with llama.cpp, whose activations are 8-bit integers. In each iteration they
// take turns. A rate is that of the fastest step of all, which other programs disturb least.
func BenchmarkDecode(b *testing.B) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(b, "%s does not run on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	for _, r := range []struct {
		ours   quant.Format
		theirs string
	}{{quant.MXFP4, "MXFP4"}, {quant.NVFP4, "NVFP4"}, {quant.MXFP8, "Q8_0"}, {quant.MXINT8, "Q8_0"}, {quant.Q8_0, "Q8_0"}} {
		b.Run("format="+r.ours.Name, func(b *testing.B) {
			rivals := decodeRivals(b, r.ours, r.theirs)
			for _, phase := range decodePhases {
				for threads := 1; threads <= 2; threads++ {
					b.Run(fmt.Sprintf("%s/threads=%d", phase.name, threads), func(b *testing.B) {
						fastest := make([]float64, len(rivals))
						for i := range fastest {
							fastest[i] = math.Inf(1)
						}
						for b.Loop() {
							for i, x := range rivals {
								fastest[i] = min(fastest[i], x.fastest(threads, phase.tokens, phase.step))
							}
						}
						for i, x := range rivals {
							b.ReportMetric(float64(phase.step)/fastest[i], x.name+"-tokens/s")
						}
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		})
	}
}

// A decodeRival adds a number of tokens to an empty context and returns the seconds of the fastest
// step.
type decodeRival struct {
	name    string
	fastest func(threads, tokens, step int) float64
}

// decodeRivals returns llama.cpp, and this module with inputs in BF16 and in 8-bit integers. Q8_0 is in
// the same file for both, other formats are in a directory of this module.
func decodeRivals(b *testing.B, f quant.Format, theirs string) []decodeRival {
	p := startDecoder(b, theirs)
	rivals := []decodeRival{{"llama.cpp:" + theirs, func(threads, tokens, step int) float64 {
		var answer struct{ Fastest float64 }
		p.ask(b, map[string]int{"threads": threads, "tokens": tokens, "step": step}, &answer)
		return answer.Fastest
	}}}
	model := p.model
	if f.Name != quant.Q8_0.Name {
		shape, err := bench.ParseShape("1B")
		if err != nil {
			b.Fatal(err)
		}
		if model, err = bench.WriteRandom(b.Context(), b.TempDir(), shape, f, 0); err != nil {
			b.Fatal(err)
		}
	}
	for _, inputs := range []quant.Format{quant.BF16, quant.MXINT8} {
		m, err := decoder.Load(b.Context(), model, decoder.LoadOptions{Inference: true, Inputs: inputs})
		if err != nil {
			b.Fatal(err)
		}
		rivals = append(rivals, decodeRival{"inputs:" + inputs.Name, func(threads, tokens, step int) float64 {
			return fastestStep(b, m, threads, tokens, step)
		}})
	}
	return rivals
}

// fastestStep adds tokens to a new session, step at a time, and returns the seconds of the fastest step.
func fastestStep(b *testing.B, m *decoder.Model, threads, tokens, step int) float64 {
	m.Inference.Threads = threads
	s, err := m.NewSession(tokens)
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(i)
	}
	fastest := math.Inf(1)
	for i := 0; i < tokens; i += step {
		start := time.Now()
		if _, err := s.Append(b.Context(), ids[i:i+step]); err != nil {
			b.Fatal(err)
		}
		fastest = min(fastest, time.Since(start).Seconds())
	}
	return fastest
}

// A decoderProcess is decode_libllama.py at work.
type decoderProcess struct {
	to    io.Writer
	from  *bufio.Reader
	model string // the GGUF file that it has written
}

func startDecoder(b *testing.B, kind string) *decoderProcess {
	b.Helper()
	model := filepath.Join(b.TempDir(), "model.gguf")
	to, from := startLibllama(b, "decode_libllama.py", model, kind)
	return &decoderProcess{to, from, model}
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
