// Package console runs a language model for a person at a terminal or for a script: one answer to a
// prompt, or a conversation.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
)

// A Console is a model and the options of its answers.
type Console struct {
	Model     *generation.Model
	System    string // the first message of conversations; empty: none
	Complete  bool   // continue prompts as text, even if the model has a chat template
	Positions int    // of the context; 0: those of the model, at most 4096
	MaxTokens int    // of an answer; 0: until the context is full
	Sampling  sampling.Options

	Out io.Writer // text of the model
	Log io.Writer // everything else

	context *generation.Context
	total   tally
}

// A tally counts tokens and the time that they took.
type tally struct {
	prompt, answer generation.Rate
	answered       int // tokens of answers: the passes of a prompt compute the first one
}

func (t *tally) add(a *generation.Answer) {
	prompt, answer := a.Rates()
	t.prompt.Add(prompt)
	t.answer.Add(answer)
	t.answered += a.Tokens
}

func (t *tally) String() string {
	return "prompt: " + rateText(t.prompt.Tokens, t.prompt) + ", answer: " + rateText(t.answered, t.answer)
}

// rateText describes tokens. A rate of no passes is omitted.
func rateText(tokens int, r generation.Rate) string {
	text := show.Counted(tokens, "token")
	if r.Tokens > 0 {
		text += fmt.Sprintf(", %.1f tokens/s", r.PerSecond())
	}
	return text
}

// open creates the context.
func (c *Console) open() (err error) {
	c.context, err = c.Model.NewContext(c.Model.Positions(c.Positions), 1)
	return err
}

// chats reports whether the template of the model is used.
func (c *Console) chats() bool { return !c.Complete && c.Model.Text.Template != "" }

// prompt returns the tokens of messages or, in completion, of the last one.
func (c *Console) prompt(ctx context.Context, messages []chat.Message) ([]int32, error) {
	if c.chats() {
		return chat.Conversation(ctx, c.Model.Text, messages)
	}
	return c.Model.Text.Completion(messages[len(messages)-1].Content), nil
}

// messages returns the beginning of a conversation.
func (c *Console) messages() []chat.Message {
	if c.System == "" {
		return nil
	}
	return []chat.Message{{Role: "system", Content: c.System}}
}

// checkSystem returns an error for a system message without a chat template to write it.
func (c *Console) checkSystem() error {
	if c.System != "" && !c.chats() {
		if c.Complete {
			return errors.New("a completion has no system message: write it into the prompt")
		}
		return fmt.Errorf("%s has no chat template, so it has no system message: write it into the prompt", c.Model.Name)
	}
	return nil
}

// answer writes one answer to messages. On error, whole holds what was written.
func (c *Console) answer(ctx context.Context, messages []chat.Message, write func(generation.Part) error) (whole generation.Part,
	a *generation.Answer, err error) {
	prompt, err := c.prompt(ctx, messages)
	if err != nil {
		return whole, nil, err
	}
	a, err = c.Model.Begin(c.context, generation.Request{Prompt: prompt, MaxTokens: c.MaxTokens, Sampling: c.Sampling, Message: c.chats()})
	if err != nil {
		return whole, nil, err
	}
	var reasoning, text strings.Builder
	err = a.Write(ctx, func(p generation.Part) error {
		reasoning.WriteString(p.Reasoning)
		text.WriteString(p.Text)
		return write(p)
	})
	c.total.add(a)
	return generation.Part{Reasoning: reasoning.String(), Text: text.String()}, a, err
}

// print writes one answer to Out, and its reasoning to Log.
func (c *Console) print(ctx context.Context, messages []chat.Message) (text string, a *generation.Answer, err error) {
	out := show.TextWriter{W: c.Out, Escape: show.IsTerminal(c.Out)}
	thinking := reasoningWriter{text: show.TextWriter{W: c.Log, Escape: show.IsTerminal(c.Log)}}
	whole, a, err := c.answer(ctx, messages, func(p generation.Part) error {
		thinking.write(p.Reasoning)
		if p.Text != "" {
			thinking.end()
			out.Write([]byte(p.Text))
		}
		return out.Err
	})
	thinking.end()
	if text = whole.Text; text != "" {
		out.End()
	}
	if a != nil && a.Full {
		fmt.Fprintf(c.Log, "The answer ends here because the context of %d tokens is full.\n", c.Model.Positions(c.Positions))
	}
	if out.Err != nil {
		err = fmt.Errorf("%w: %w", errOutput, out.Err)
	}
	return text, a, err
}

// errOutput is the error of writing text of the model.
var errOutput = errors.New("write the answer")

// Once writes the answer to one prompt.
func (c *Console) Once(ctx context.Context, prompt string) error {
	if err := errors.Join(c.checkSystem(), c.open()); err != nil {
		return err
	}
	_, a, err := c.print(ctx, append(c.messages(), chat.Message{Role: "user", Content: prompt}))
	if a != nil && (a.Tokens > 0 || err == nil) {
		fmt.Fprintln(c.Log, &c.total)
	}
	return interrupted(err, a)
}

// interrupted returns the error of an answer, which is nil if it had not begun.
func interrupted(err error, a *generation.Answer) error {
	tokens := 0
	if a != nil {
		tokens = a.Tokens
	}
	return show.Interrupted(err, "after "+show.Counted(tokens, "token"))
}

// A Document is an answer as JSON.
type Document struct {
	Model           string            `json:"model"`
	System          string            `json:"system,omitempty"`
	Prompt          string            `json:"prompt"`
	Reasoning       string            `json:"reasoning,omitempty"`
	Text            string            `json:"text"`
	FinishReason    generation.Finish `json:"finish_reason"`
	Context         int               `json:"context"`
	Temperature     float64           `json:"temperature"`
	TopK            int               `json:"top_k"`
	TopP            float64           `json:"top_p"`
	MinP            float64           `json:"min_p"`
	RepeatPenalty   float64           `json:"repeat_penalty"`
	Seed            uint64            `json:"seed"`
	PromptTokens    int               `json:"prompt_tokens"`
	PromptSeconds   float64           `json:"prompt_seconds"`
	Tokens          int               `json:"tokens"`
	Seconds         float64           `json:"seconds"`
	TokensPerSecond show.Number       `json:"tokens_per_second"`
}

// Describe writes the answer to one prompt as a JSON document.
func (c *Console) Describe(ctx context.Context, prompt string) error {
	if err := errors.Join(c.checkSystem(), c.open()); err != nil {
		return err
	}
	whole, a, err := c.answer(ctx, append(c.messages(), chat.Message{Role: "user", Content: prompt}),
		func(generation.Part) error { return nil })
	if err != nil {
		return interrupted(err, a)
	}
	o := c.Sampling
	_, rate := a.Rates()
	return show.PrintJSON(c.Out, Document{
		Model: c.Model.Name, System: c.System, Prompt: prompt, Reasoning: whole.Reasoning, Text: whole.Text, FinishReason: a.Finish,
		Context:     c.Model.Positions(c.Positions),
		Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP, RepeatPenalty: o.RepeatPenalty, Seed: o.Seed,
		PromptTokens: a.PromptTokens, PromptSeconds: a.PromptTime.Seconds(), Tokens: a.Tokens, Seconds: a.Time.Seconds(),
		TokensPerSecond: show.Number(rate.PerSecond()),
	})
}
