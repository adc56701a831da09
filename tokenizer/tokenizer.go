// Package tokenizer converts text to the token ids of language models and back, as the files of
// a model define: tokenizer.json of Hugging Face, or the metadata of a GGUF file.
//
// It has the two kinds of byte-pair encoding (BPE) that decoders use: byte-level BPE (GPT-2,
// Llama 3, Qwen, DeepSeek, SmolLM, gpt-oss) and SentencePiece BPE with byte fallback (Llama 2,
// Mistral, Phi-3, Gemma). Ids equal those of Python's package tokenizers; interop compares them.
//
// Text passes these steps, each in a separate file:
//
//	added tokens (added.go)    special tokens such as <|im_start|> are cut out first
//	normalizer (normalize.go)  NFC, or spaces as ▁
//	pre-tokenizer (split.go)   text is split into words by patterns (pattern.go)
//	model (bpe.go)             pairs of symbols of a word are merged, the lowest rank first
//	post-processor             tokens before and after the text
//
// A step that the package does not know is an error that names it.
package tokenizer

import (
	"fmt"
	"strings"
)

// A Tokenizer holds what a file defines. Several goroutines may use it.
type Tokenizer struct {
	tokens  []string // by id; empty where an id has no token
	ids     map[string]uint32
	special map[uint32]bool // added tokens that are not text

	raw, normalized matcher // added tokens in text before and after normalization
	normalizers     []normalizer
	splitters       []splitter
	model           *bpe
	before, after   []uint32 // the post-processor's
	decoder         decoder
}

// Options change how Encode reads text. The zero value reads special tokens in the text as
// such, and adds none.
type Options struct {
	AddSpecial bool // add the tokens that begin and end a text, such as <|begin_of_text|>
	Literal    bool // special tokens in the text are text
}

// Bytes returns the tokenizer of 256 tokens whose ids are the values of bytes.
func Bytes() *Tokenizer {
	m := model{Vocab: map[string]uint32{}}
	for b, r := range byteRunes {
		m.Vocab[string(r)] = uint32(b)
	}
	t := &Tokenizer{special: map[uint32]bool{}, decoder: decoder{byteLevel: true}}
	err := t.setTokens(&file{Model: m})
	if err == nil {
		t.model, err = newBPE(&m, true)
	}
	if err != nil {
		panic(err) // the vocabulary is fixed
	}
	return t
}

// Encode returns the ids of a text.
func (t *Tokenizer) Encode(text string, o Options) []uint32 {
	ids := make([]uint32, 0, len(text)/3+8)
	if o.AddSpecial {
		ids = append(ids, t.before...)
	}
	first := true // the part begins the text
	t.raw.split(text, o.Literal, func(part string, id uint32, isToken bool) {
		if isToken {
			ids = append(ids, id)
		} else {
			ids = t.encodePart(ids, part, o, first)
		}
		first = false
	})
	if o.AddSpecial {
		ids = append(ids, t.after...)
	}
	return ids
}

// encodePart appends the ids of text without added tokens that are found before normalization.
func (t *Tokenizer) encodePart(ids []uint32, part string, o Options, first bool) []uint32 {
	for _, n := range t.normalizers {
		part = n.normalize(part)
	}
	t.normalized.split(part, o.Literal, func(part string, id uint32, isToken bool) {
		if isToken {
			ids = append(ids, id)
		} else {
			split(t.splitters, part, first, func(word string) { ids = t.model.encode(ids, word) })
		}
		first = false
	})
	return ids
}

// Size returns the number of ids: one more than the largest.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID returns the id of a token, written as the file has it.
func (t *Tokenizer) ID(token string) (id uint32, ok bool) {
	id, ok = t.ids[token]
	return id, ok
}

// Begin returns the token that begins a text, such as <|begin_of_text|>. ok is false if the
// tokenizer adds none.
func (t *Tokenizer) Begin() (id uint32, ok bool) {
	if len(t.before) == 0 {
		return 0, false
	}
	return t.before[0], true
}

// Token returns the token of an id, written as the file has it.
func (t *Tokenizer) Token(id uint32) (string, error) {
	if uint64(id) >= uint64(len(t.tokens)) {
		return "", fmt.Errorf("tokenizer: no token has id %d: ids are less than %d", id, len(t.tokens))
	}
	return t.tokens[id], nil
}

// TokenText returns a token as text inside of other text: with the spaces that Decode leaves out at the beginning.
// Bytes that are a part of a character are U+FFFD.
func (t *Tokenizer) TokenText(id uint32) (string, error) {
	s := t.Stream(false)
	s.begun = true
	text, err := s.Next(id)
	return text + s.End(), err
}

// IsSpecial reports whether a token is not text. Such tokens begin a text or a message, or are padding.
func (t *Tokenizer) IsSpecial(id uint32) bool { return t.special[id] }

// Decode returns the text of ids. Bytes that are not UTF-8 become U+FFFD. With skipSpecial,
// special tokens are left out.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) (string, error) {
	var text strings.Builder
	s := t.Stream(skipSpecial)
	s.holdRuns = true
	for _, id := range ids {
		part, err := s.Next(id)
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	text.WriteString(s.End())
	return text.String(), nil
}
