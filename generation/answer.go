package generation

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation/sampling"
	"github.com/microscale-go/microscale/tokenizer"
)

// A Request asks for one answer.
type Request struct {
	Prompt    []int32
	MaxTokens int      // maximum number of generated tokens; 0: as many as the context has positions for
	Stop      []string // strings that end the answer, and are not part of it
	Sampling  sampling.Options

	Logprobs    int  // number of most likely tokens in the Logprobs of the answer
	Logprob     bool // compute the Logprobs of the generated tokens
	ScorePrompt bool // compute those of the tokens of the prompt, too
	PromptOnly  bool // generate nothing

	// Message: the answer is a message of a conversation. Its reasoning is separate, and stop strings concern only the
	// rest. Otherwise the answer continues the text of the prompt.
	Message bool
}

// A Finish is the reason for the end of an answer, as OpenAI's API names it. The answer has not ended if it
// is empty.
type Finish string

// Reasons for the end of an answer.
const (
	Stopped Finish = "stop"   // a stop token or a stop string
	Length  Finish = "length" // MaxTokens, or the context is full
)

// An Answer is a text that a model writes.
type Answer struct {
	Finish Finish
	Full   bool // whether it ended because the context is full

	PromptTokens int // of the whole prompt
	Cached       int // tokens of the prompt that the context held
	Tokens       int // generated, without the stop token

	PromptLogprobs []Logprob // of the tokens of the prompt, if the request has ScorePrompt
	Logprobs       []Logprob // of the generated tokens and the stop token, if the request has Logprob

	PromptTime time.Duration // of forward passes for the prompt
	Time       time.Duration // of all other steps
	read       int           // tokens of the prompt computed
	steps      int           // other than those of the prompt

	model     *Model
	context   *Context
	request   Request
	pending   []int32 // tokens to compute
	sampler   *sampling.Sampler
	stream    *tokenizer.Stream
	stopper   stopper
	separator separator // nil: all is text
}

// Begin prepares an answer in a context, which no other answer may use until the end. Step computes it.
func (m *Model) Begin(c *Context, r Request) (*Answer, error) {
	if len(r.Prompt) == 0 {
		return nil, fmt.Errorf("the prompt has no tokens")
	}
	if n := c.session.Positions(); len(r.Prompt) > n {
		return nil, &PromptTooLong{len(r.Prompt), n}
	}
	for i, id := range r.Prompt {
		if has := m.decoder.Vocabulary(); id < 0 || int(id) >= has {
			return nil, &NoSuchToken{i, id, has}
		}
	}
	if r.MaxTokens < 0 {
		return nil, fmt.Errorf("the maximum number of tokens is %d, want at least 0", r.MaxTokens)
	}
	if slices.Contains(r.Stop, "") {
		return nil, fmt.Errorf("a stop string is empty")
	}
	sampler, err := sampling.New(r.Sampling)
	if err != nil {
		return nil, err
	}
	a := &Answer{
		PromptTokens: len(r.Prompt), model: m, context: c, request: r, sampler: sampler,
		stream: m.Text.Tokenizer.Stream(true), stopper: stopper{stops: r.Stop},
	}
	if r.Message {
		a.separator = m.Text.separator(r.Prompt)
	} else {
		a.stream = m.Text.Continue(r.Prompt)
	}
	if r.ScorePrompt { // every position computes logits
		c.truncate(0)
		a.PromptLogprobs = []Logprob{{Token: r.Prompt[0], Value: math.NaN()}}
	}
	a.pending = c.begin(r.Prompt)
	a.Cached = len(r.Prompt) - len(a.pending)
	return a, nil
}

// PromptTooLong is the error of a prompt that has more tokens than the context has positions.
type PromptTooLong struct{ Tokens, Positions int }

func (e *PromptTooLong) Error() string {
	return fmt.Sprintf("the prompt has %d tokens, but the context has %d positions: shorten the prompt or use a larger context", e.Tokens,
		e.Positions)
}

// NoSuchToken is the error of a prompt with a token that the model does not have, such as a special token that only
// its tokenizer has.
type NoSuchToken struct {
	Index      int // in the prompt
	Token      int32
	Vocabulary int // of the model
}

func (e *NoSuchToken) Error() string {
	return fmt.Sprintf("token %d of the prompt is %d, but the model has tokens 0 to %d: leave it out", e.Index, e.Token, e.Vocabulary-1)
}

// Step computes one forward pass, and returns what it adds to the answer. The answer has
// ended when Finish is not empty. After an error, which may be that of ctx, the context can be used
// for other answers.
func (a *Answer) Step(ctx context.Context) (p Part, err error) {
	start := time.Now()
	spent, count := a.counters()
	defer func() { *spent += time.Since(start) }()
	chunk := a.pending[:min(len(a.pending), decoder.PromptChunk)]
	advance := a.context.append
	if a.request.ScorePrompt && a.Tokens == 0 {
		advance = a.score
	}
	logits, err := advance(ctx, chunk)
	if err != nil {
		return p, err
	}
	*count += len(chunk)
	if a.pending = a.pending[len(chunk):]; len(a.pending) > 0 {
		return p, nil
	}
	return a.next(logits)
}

// next draws a token and returns what it adds.
func (a *Answer) next(logits []float32) (p Part, err error) {
	t := a.model.Text
	if a.request.PromptOnly {
		a.Finish = Length
		return p, nil
	}
	all := logits
	logits = logits[:min(len(logits), t.Tokenizer.Size())] // models may have more logits than tokens
	token, err := a.sampler.Next(logits, a.context.tokens)
	if err != nil {
		return p, err
	}
	if a.request.Logprob {
		a.Logprobs = append(a.Logprobs, logprob(all, t.Tokenizer.Size(), token, a.request.Logprobs))
	}
	if slices.Contains(t.Stop, token) {
		return a.end(p, Stopped), nil
	}
	a.Tokens++
	p, err = a.decode(uint32(token))
	if err != nil {
		return p, err
	}
	text, stopped := a.stopper.next(p.Text)
	p.Text = text
	switch {
	case stopped:
		a.Finish = Stopped
	case a.Tokens == a.request.MaxTokens || a.context.full():
		p = a.end(p, Length)
		a.Full = a.Finish == Length && a.Tokens != a.request.MaxTokens
	default:
		a.pending = append(a.pending[:0:0], token)
	}
	return p, nil
}

// decode returns what a token adds, before stop strings.
func (a *Answer) decode(token uint32) (p Part, err error) {
	t := a.model.Text.Tokenizer
	if a.separator != nil && t.IsSpecial(token) {
		name, err := t.Token(token)
		return a.separator.next(name, a.stream.End()), err
	}
	text, err := a.stream.Next(token)
	return a.separate(text), err
}

// separate returns the parts of a text.
func (a *Answer) separate(text string) Part {
	if a.separator == nil {
		return Part{Text: text}
	}
	return a.separator.next("", text)
}

// end finishes the answer and returns the last part with what was held back.
func (a *Answer) end(last Part, f Finish) Part {
	a.Finish = f
	p := a.separate(a.stream.End())
	if a.separator != nil {
		held := a.separator.end()
		p.Reasoning, p.Text = p.Reasoning+held.Reasoning, p.Text+held.Text
	}
	text, stopped := a.stopper.next(p.Text)
	if stopped {
		a.Finish = Stopped
	} else {
		text += a.stopper.end()
	}
	return Part{last.Reasoning + p.Reasoning, last.Text + text}
}

// A Rate is a number of computed tokens and the time that they took.
type Rate struct {
	Tokens int
	Time   time.Duration
}

// Add adds the tokens and the time of another rate.
func (r *Rate) Add(other Rate) {
	r.Tokens += other.Tokens
	r.Time += other.Time
}

// PerSecond returns tokens per second, 0 if nothing was computed.
func (r Rate) PerSecond() float64 {
	if r.Tokens == 0 || r.Time <= 0 {
		return 0
	}
	return float64(r.Tokens) / r.Time.Seconds()
}

// Rates returns the tokens of the prompt that were computed, and the passes after them, which
// compute one token each.
func (a *Answer) Rates() (prompt, answer Rate) {
	return Rate{a.read, a.PromptTime}, Rate{a.steps, a.Time}
}

// Write runs the answer to its end, and passes its parts to write.
func (a *Answer) Write(ctx context.Context, write func(Part) error) error {
	for a.Finish == "" {
		p, err := a.Step(ctx)
		if err != nil {
			return err
		}
		if p == (Part{}) {
			continue
		}
		if err := write(p); err != nil {
			return err
		}
	}
	return nil
}
