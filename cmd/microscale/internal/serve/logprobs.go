package serve

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/microscale-go/microscale/generation"
)

// maxTopLogprobs is the number of most likely tokens that a request may ask for, as for chat in OpenAI's API.
const maxTopLogprobs = 20

// textLogprobs are the log probabilities of the tokens of a completion. Those of the first token of a prompt are null.
type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"` // with the token itself
	Offsets  []int                `json:"text_offset"`  // in characters
}

// chatLogprobs are the log probabilities of the tokens of an answer to a conversation.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// maxEntries is the number of log probabilities of prompts in an answer, which is built before it is sent: those of
// 128 prompts of 4096 tokens with one most likely token each, some hundred bytes an entry.
const maxEntries = maxPrompts * 4096 * 2

// checkEntries returns an error for prompts with too many log probabilities.
func checkEntries(prompts []prompt, r generation.Request) error {
	tokens := 0
	for _, p := range prompts {
		tokens += len(p.tokens)
	}
	if n := tokens * (1 + r.Logprobs); r.ScorePrompt && n > maxEntries {
		return badRequest("logprobs", "%d tokens of prompts with %d log probabilities each are %d, want at most %d: send fewer prompts or "+
			"lower logprobs",
			tokens, 1+r.Logprobs, n, maxEntries)
	}
	return nil
}

// tokenText returns a token as text inside of other text. Bytes that are a part of a character are U+FFFD.
func tokenText(t *generation.Text, token int32) string {
	text, _ := t.Tokenizer.TokenText(uint32(token)) // a token of the model
	return text
}

// textLogprobsOf returns the log probabilities of the tokens of a prompt, if there are any, and those of the answer. Offsets
// are those in the text of the choice, where special tokens of the answer and those before a text are nothing.
func textLogprobsOf(t *generation.Text, asked prompt, prompt, answer []generation.Logprob) *textLogprobs {
	l, at := &textLogprobs{Tokens: []string{}, Logprobs: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}, 0
	added, stream := asked.added(t), t.Tokenizer.Stream(false)
	for i, p := range slices.Concat(prompt, answer) {
		if i == len(prompt) {
			if stream = t.Continue(asked.tokens); i > 0 {
				at = utf8.RuneCountInString(asked.text)
			}
		}
		l.Tokens, l.Offsets = append(l.Tokens, tokenText(t, p.Token)), append(l.Offsets, at)
		if i >= min(added, len(prompt)) {
			text, _ := stream.Next(uint32(p.Token)) // a token of the model
			at += utf8.RuneCountInString(text)
		}
		if math.IsNaN(p.Value) {
			l.Logprobs, l.Top = append(l.Logprobs, nil), append(l.Top, nil)
			continue
		}
		l.Logprobs = append(l.Logprobs, finite(p.Value))
		top := map[string]float64{}
		for _, other := range append(p.Top, generation.TokenLogprob{Token: p.Token, Value: p.Value}) {
			name := tokenText(t, other.Token)
			if _, ok := top[name]; !ok { // several tokens may have a text: the most likely one is first
				top[name] = *finite(other.Value)
			}
		}
		l.Top = append(l.Top, top)
	}
	return l
}

// finite returns a number that JSON has: the logarithm of zero becomes the smallest one.
func finite(v float64) *float64 {
	v = max(v, -math.MaxFloat32)
	return &v
}

// chatLogprobsOf returns the log probabilities of the tokens of an answer.
func chatLogprobsOf(t *generation.Text, tokens []generation.Logprob) *chatLogprobs {
	one := func(p generation.TokenLogprob) tokenLogprob {
		l := tokenLogprob{tokenText(t, p.Token), *finite(p.Value), []int{}}
		for _, b := range []byte(l.Token) {
			l.Bytes = append(l.Bytes, int(b))
		}
		return l
	}
	l := &chatLogprobs{Content: []chatLogprob{}}
	for _, p := range tokens {
		c := chatLogprob{one(generation.TokenLogprob{Token: p.Token, Value: p.Value}), []tokenLogprob{}}
		for _, other := range p.Top {
			c.Top = append(c.Top, one(other))
		}
		l.Content = append(l.Content, c)
	}
	return l
}
