package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"syscall"
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
// take turns. A rate is that of the fastest step of all, which other programs disturb least; another counts the
// processor time of the step that took least of it, for machines that other programs use. -kernel TIER restricts both
// to the instructions of a tier.
func BenchmarkDecode(b *testing.B) {
	if runtime.GOARCH != "amd64" {
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
						fastest := make([]stepTime, len(rivals))
						for i := range fastest {
							fastest[i] = noStep
						}
						for b.Loop() {
							for i, x := range rivals {
								fastest[i] = fastest[i].min(x.fastest(threads, phase.tokens, phase.step))
							}
						}
						for i, x := range rivals {
							b.ReportMetric(float64(phase.step)/fastest[i].Time, x.name+"-tokens/s")
							b.ReportMetric(float64(phase.step)/fastest[i].Busy, x.name+"-tokens/processor-s")
						}
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		})
	}
}

// A stepTime holds the seconds of a step, and those that processors worked for it.
type stepTime struct{ Time, Busy float64 }

var noStep = stepTime{math.Inf(1), math.Inf(1)}

// min returns the lesser of both times.
func (s stepTime) min(other stepTime) stepTime {
	return stepTime{min(s.Time, other.Time), min(s.Busy, other.Busy)}
}

// A decodeRival adds a number of tokens to an empty context and returns the times of the fastest
// step.
type decodeRival struct {
	name    string
	fastest func(threads, tokens, step int) stepTime
}

// decodeRivals returns llama.cpp, and this module with inputs in BF16, in 8-bit integers and in two terms of them. Q8_0 is in
// the same file for both, other formats are in a directory of this module.
func decodeRivals(b *testing.B, f quant.Format, theirs string) []decodeRival {
	p := startDecoder(b, theirs)
	rivals := []decodeRival{{"llama.cpp:" + theirs, func(threads, tokens, step int) (answer stepTime) {
		p.ask(b, map[string]int{"threads": threads, "tokens": tokens, "step": step}, &answer)
		return answer
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
	for _, inputs := range []decoder.Inputs{{Format: quant.BF16}, {Format: quant.MXINT8}, {Format: quant.MXINT8, Residual: true}} {
		m, err := decoder.Load(b.Context(), model, decoder.LoadOptions{Inference: true, Inputs: inputs})
		if err != nil {
			b.Fatal(err)
		}
		rivals = append(rivals, decodeRival{"inputs:" + inputs.String(), func(threads, tokens, step int) stepTime {
			return fastestStep(b, m, threads, tokens, step)
		}})
	}
	return rivals
}

// fastestStep adds tokens to a new session, step at a time, and returns the times of the fastest step.
func fastestStep(b *testing.B, m *decoder.Model, threads, tokens, step int) stepTime {
	m.Inference.Threads = threads
	s, err := m.NewSession(tokens)
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(i)
	}
	fastest := noStep
	for i := 0; i < tokens; i += step {
		start, begun := time.Now(), processorTime(b)
		if _, err := s.Append(b.Context(), ids[i:i+step]); err != nil {
			b.Fatal(err)
		}
		fastest = fastest.min(stepTime{time.Since(start).Seconds(), (processorTime(b) - begun).Seconds()})
	}
	return fastest
}

// processorTime returns the time that processors have worked for this process.
func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
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
