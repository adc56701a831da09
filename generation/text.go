package generation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/tokenizer"
)

// A Text converts text to the tokens of a model and back.
type Text struct {
	Tokenizer *tokenizer.Tokenizer
	Template  string            // for chat; empty: the model has none
	BOS, EOS  string            // tokens that begin and end a text, for the template
	Special   map[string]string // further tokens of the template by their names, such as unk_token
	Stop      []int32           // tokens that end an answer
	Sampling  Sampling          // what the files of the model recommend
	Notes     []string          // what the files do not say, as sentences

	MaxBytes int // of a conversation: one with more bytes is a TextTooLong; 0: no limit
}

// LongestToken returns the length of the longest token in bytes, of those that the file of the tokenizer writes.
func (t *Text) LongestToken() (n int) {
	for id := range t.Tokenizer.Size() {
		token, _ := t.Tokenizer.Token(uint32(id)) // every id below the size has one
		n = max(n, len(token))
	}
	return n
}

// TextTooLong is the error of a text of more bytes than the tokens that fit into a context have.
type TextTooLong struct{ Bytes, Max int }

func (e *TextTooLong) Error() string {
	return fmt.Sprintf("the prompt has %d bytes, but the tokens of a context have at most %d: shorten the prompt or use a larger context",
		e.Bytes, e.Max)
}

// CheckSize returns a TextTooLong error for a text of more than MaxBytes.
func (t *Text) CheckSize(text string) error {
	if t.MaxBytes > 0 && len(text) > t.MaxBytes {
		return &TextTooLong{len(text), t.MaxBytes}
	}
	return nil
}

// addStops adds tokens that end answers, without duplicates.
func (t *Text) addStops(ids ...int32) {
	t.Stop = append(t.Stop, ids...)
	slices.Sort(t.Stop)
	t.Stop = slices.Compact(t.Stop)
}

// guessStops takes the ends of answers by their names, for models that declare none.
func (t *Text) guessStops() {
	var names []string
	for _, id := range t.Tokenizer.GuessEnds() {
		t.addStops(int32(id))
		name, _ := t.Tokenizer.Token(id) // a separate token
		names = append(names, name)
	}
	if len(names) > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("The model declares no eos_token_id. Answers end at %s, a guess by name.",
			strings.Join(names, ", ")))
	}
}

// Completion returns the tokens of a text to continue. An empty text is BOS, or a newline if the
// model has none.
func (t *Text) Completion(text string) []int32 {
	ids := t.encode(text, true)
	if len(ids) > 0 {
		return ids
	}
	if id, ok := t.Tokenizer.ID(t.BOS); ok && t.BOS != "" {
		return []int32{int32(id)}
	}
	return t.Encode("\n")
}

// Continue returns a decoder of a text that continues that of a prompt. The first space of SentencePiece's words belongs
// to the text, unless the prompt has none.
func (t *Text) Continue(prompt []int32) *tokenizer.Stream {
	stream := t.Tokenizer.Stream(true)
	for _, id := range prompt {
		text, _ := stream.Next(uint32(id)) // a token that only the model has is no text
		if text+stream.End() != "" {
			break
		}
	}
	return stream
}

// Encode returns the tokens of a text that holds its special tokens, as chat templates write it.
func (t *Text) Encode(text string) []int32 { return t.encode(text, false) }

func (t *Text) encode(text string, special bool) []int32 {
	ids := t.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: special})
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		tokens[i] = int32(id)
	}
	return tokens
}
