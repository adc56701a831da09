package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// An LLM is a language model to measure at the sizes of llama.cpp's llama-bench.
type LLM struct {
	Source   *hf.Checkpoint
	Inputs   decoder.Inputs    // as in decoder.LoadOptions
	Prompt   int               // tokens of pp; 0: not measured
	Generate int               // tokens of tg; 0: not measured
	Depth    int               // tokens before those of both
	Rounds   int               // of each test, after one that is not counted
	Progress func(test string) // called after each round, if not nil
}

// An LLMTest is the result of one size: ppN reads a prompt of N tokens, tgN generates N tokens
// one by one.
type LLMTest struct {
	Name    string
	Tokens  int
	Time    Sample  // of all tokens
	Limit   float64 // tokens per second that the machine allows
	LimitBy string
}

// Rate returns the tokens per second of the median time.
func (t LLMTest) Rate() float64 { return float64(t.Tokens) / t.Time.Median }

// Fraction returns the rate as a share of the limit.
func (t LLMTest) Fraction() float64 { return t.Rate() / t.Limit }

// An LLMResult is the result of a model.
type LLMResult struct {
	Load     float64 // seconds to read the model, with the bytes of its files in the page cache or not
	Bytes    int     // of weights that a token reads
	Resident int64   // peak resident memory in bytes; 0 if unknown
	Tests    []LLMTest
}

// LLM measures a language model. The limit of a prompt is the peak of the instruction that bounds
// its products, that of generation is reading the weights and the KV cache. budget is for the
// limits.
func (t *Team) LLM(ctx context.Context, l LLM, budget time.Duration) (LLMResult, error) {
	host.ResetResident()
	start := time.Now()
	m, err := decoder.Read(ctx, l.Source, decoder.LoadOptions{Inference: true, Inputs: l.Inputs})
	if err != nil {
		return LLMResult{}, err
	}
	m.Inference.Threads = t.Threads()
	layers, head := m.Work()
	r := LLMResult{Load: time.Since(start).Seconds(), Bytes: layers.Bytes + head.Bytes}
	s, err := m.NewSession(l.Depth + max(l.Prompt, l.Generate))
	if err != nil {
		return r, err
	}
	for _, test := range []struct {
		name         string
		tokens, step int
	}{{"pp", l.Prompt, l.Prompt}, {"tg", l.Generate, 1}} {
		if test.tokens == 0 {
			continue
		}
		name := fmt.Sprintf("%s%d", test.name, test.tokens)
		sample, err := t.appends(ctx, s, l, name, test.tokens, test.step)
		if err != nil {
			return r, err
		}
		r.Tests = append(r.Tests, LLMTest{Name: name, Tokens: test.tokens, Time: sample})
	}
	r.Resident = host.PeakResident()
	err = t.boundLLM(&r, m, l, layers, head, budget)
	return r, err
}

// appends measures adding tokens to a session that holds l.Depth tokens.
func (t *Team) appends(ctx context.Context, s *decoder.Session, l LLM, name string, tokens, step int) (Sample, error) {
	ids := make([]int32, max(l.Depth, tokens))
	var laps Laps
	for round := range l.Rounds + 1 {
		var err error
		s.Truncate(min(s.Position(), l.Depth))
		if rest := l.Depth - s.Position(); rest > 0 {
			if _, err = s.Append(ctx, ids[:rest]); err != nil {
				return Sample{}, err
			}
		}
		laps.Start()
		elapsed := t.first(func() {
			for at := 0; at < tokens && err == nil; at += step {
				_, err = s.Append(ctx, ids[at:at+step])
			}
		})
		if err != nil {
			return Sample{}, err
		}
		if round > 0 {
			laps.End(elapsed)
		}
		if l.Progress != nil {
			l.Progress(name)
		}
	}
	return laps.Sample(), nil
}

// first runs f on the first thread, with the goroutines that it starts on the others, and returns
// its time.
func (t *Team) first(f func()) time.Duration {
	t.waits = len(t.members) > 1
	defer func() { t.waits = false }()
	elapsed, _ := t.Time(func(worker int) {
		if worker == 0 {
			f()
		}
	})
	return elapsed
}

// boundLLM sets the limits of the tests.
func (t *Team) boundLLM(r *LLMResult, m *decoder.Model, l LLM, layers, head decoder.Work, budget time.Duration) error {
	const size = 256 << 20
	for i := range r.Tests {
		test := &r.Tests[i]
		if test.Tokens != l.Prompt || test.Name[0] != 'p' {
			read := t.Read(&Memory{huge: true}, size, budget)
			test.Limit = read.Rate() * 1e9 / float64(r.Bytes+m.CacheBytes(l.Depth+test.Tokens/2))
			test.LimitBy = fmt.Sprintf("reading weights and KV cache at %.3g GB/s", read.Rate())
			continue
		}
		a, err := quant.NewTensor(quant.BF16, l.Prompt, 32)
		if err != nil {
			return err
		}
		kernel, err := gemm.Choose(a, a, gemm.Options{})
		if err != nil {
			return err
		}
		peak, err := t.Peak(kernel.Peak, budget)
		if err != nil {
			return err
		}
		operations := 2 * (float64(layers.Products)*float64(l.Prompt) + float64(head.Products))
		test.Limit = peak.Rate() * 1e9 * float64(l.Prompt) / operations
		test.LimitBy = fmt.Sprintf("%s at %.3g %s", peak.Kernel, peak.Rate(), peak.Unit)
	}
	return nil
}
