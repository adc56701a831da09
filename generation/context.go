package generation

import (
	"context"

	"github.com/microscale-go/microscale/decoder"
)

// A Context is a session with the tokens that it holds. The prompt of the next answer reuses the
// longest common prefix.
type Context struct {
	session *decoder.Session
	tokens  []int32
}

// Common returns the number of tokens at the beginning of a prompt that the context holds.
func (c *Context) Common(prompt []int32) int {
	n := 0
	for n < len(c.tokens) && n < len(prompt) && c.tokens[n] == prompt[n] {
		n++
	}
	return n
}

// begin truncates the context to its common prefix with a prompt and returns the other tokens of
// the prompt, at least the last one: its logits are needed.
func (c *Context) begin(prompt []int32) (rest []int32) {
	n := min(c.Common(prompt), len(prompt)-1)
	c.truncate(n)
	return prompt[n:]
}

// truncate keeps the first n tokens.
func (c *Context) truncate(n int) {
	c.session.Truncate(n)
	c.tokens = c.tokens[:n]
}

// append computes tokens.
func (c *Context) append(ctx context.Context, tokens []int32) (logits []float32, err error) {
	if logits, err = c.session.Append(ctx, tokens); err == nil {
		c.tokens = append(c.tokens, tokens...)
	}
	return logits, err
}

// full reports whether a further token has no position.
func (c *Context) full() bool { return len(c.tokens) >= c.session.Positions() }
