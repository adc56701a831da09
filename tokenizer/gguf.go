package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A vocabulary is what the metadata of a GGUF file says about a tokenizer.
type vocabulary struct {
	model  string    // byteLevelModel or sentencePieceModel
	pre    string    // the name of the pre-tokenizer, of gpt2
	tokens []string  // by id
	types  []int32   // by id; nil: all normal
	merges []string  // of gpt2
	scores []float32 // of llama

	bos, eos       *uint32
	addBOS, addEOS *bool
	spacePrefix    *bool // nil or true: llama puts a space before a text
}

// readVocabulary reads the keys tokenizer.ggml.*. value returns nil for a key that the file does
// not have.
func readVocabulary(value func(key string) any) (v vocabulary, err error) {
	read := func(key string, found func(any) bool) {
		if x := value("tokenizer.ggml." + key); x != nil && err == nil && !found(x) {
			err = fmt.Errorf("tokenizer.ggml.%s has the unexpected type %T", key, x)
		}
	}
	read("model", into(&v.model))
	read("pre", into(&v.pre))
	read("tokens", into(&v.tokens))
	read("token_type", into(&v.types))
	read("merges", into(&v.merges))
	read("scores", into(&v.scores))
	read("bos_token_id", intoPointer(&v.bos))
	read("eos_token_id", intoPointer(&v.eos))
	read("add_bos_token", intoPointer(&v.addBOS))
	read("add_eos_token", intoPointer(&v.addEOS))
	read("add_space_prefix", intoPointer(&v.spacePrefix))
	return v, err
}

// into returns a function that stores a value of one type, and reports whether it has it.
func into[T any](dst *T) func(any) bool {
	return func(x any) (ok bool) {
		*dst, ok = x.(T)
		return ok
	}
}

func intoPointer[T any](dst **T) func(any) bool {
	return func(x any) bool {
		v, ok := x.(T)
		*dst = &v
		return ok
	}
}

// Kinds of tokenizers in GGUF files.
const (
	byteLevelModel     = "gpt2"
	sentencePieceModel = "llama"
)

// Types of tokens in GGUF files.
const (
	unknownType     = 2
	controlType     = 3
	userDefinedType = 4
)

// Patterns of pre-tokenizers.
const (
	contractions  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	blanks        = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	symbols       = `| ?[^\s\p{L}\p{N}]+[\r\n]*`
	path          = `| ?[^\s\p{L}\p{N}]+[\r\n/]*`
	upper, lower  = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	lead          = `[^\r\n\p{L}\p{N}]?`
	llama3Words   = contractions + `|` + lead + `\p{L}+|\p{N}{1,3}` + symbols + blanks
	qwen2Words    = contractions + `|` + lead + `\p{L}+|\p{N}` + symbols + blanks
	qwen35Words   = contractions + `|` + lead + `[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + blanks
	tekkenWords   = lead + upper + `*` + lower + `+|` + lead + upper + `+` + lower + `*|\p{N}` + path + blanks
	gpt4oWords    = lead + upper + `*` + lower + `+` + contractions + `?|` + lead + upper + `+` + lower + `*` + contractions + `?|\p{N}{1,3}` + path + blanks
	deepseekHan   = "[一-龥\u3040-ゟ゠-ヿ]+"
	deepseekWords = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" + `|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + blanks
)

// A preTokenizer is how a name of GGUF files divides text, as the tokenizer.json of the models
// with that name do.
type preTokenizer struct {
	patterns   []string // none: that of GPT-2
	digits     bool     // each digit alone, before the patterns
	nfc        bool
	wholeWords bool
	bos        bool // a text begins with BOS, unless the file says otherwise
}

var preTokenizers = map[string]preTokenizer{
	"gpt-2":       {},
	"smollm":      {digits: true},
	"starcoder":   {digits: true},
	"llama-bpe":   {patterns: []string{llama3Words}, wholeWords: true, bos: true},
	"qwen2":       {patterns: []string{qwen2Words}, nfc: true},
	"qwen35":      {patterns: []string{qwen35Words}, nfc: true},
	"tekken":      {patterns: []string{tekkenWords}, wholeWords: true, bos: true},
	"gpt-4o":      {patterns: []string{gpt4oWords}},
	"deepseek-v3": {patterns: []string{`\p{N}{1,3}`, deepseekHan, deepseekWords}},
}

// FromGGUF returns the tokenizer of a GGUF file. value returns the value of a key of the file's
// metadata, nil where there is none: []string, []int32, []float32, string, uint32 or bool.
func FromGGUF(value func(key string) any) (*Tokenizer, error) {
	v, err := readVocabulary(value)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, _, err := v.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// GGUFToJSON returns the tokenizer.json of a GGUF file, whose ids and texts are those of FromGGUF.
// value is that of FromGGUF. A token whose text another one has, with a lower id, is left out: no
// text becomes that id.
func GGUFToJSON(value func(key string) any) ([]byte, error) {
	v, err := readVocabulary(value)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	_, f, err := v.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	for id, token := range v.tokens {
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("tokenizer: token %d, %q, is not UTF-8", id, token)
		}
	}
	data, err := v.json(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return data, nil
}

// tokenizer returns the tokenizer, and the file that defines it.
func (v *vocabulary) tokenizer() (*Tokenizer, *file, error) {
	f, err := v.file()
	if err != nil {
		return nil, nil, err
	}
	t, err := f.build()
	if err != nil {
		return nil, nil, err
	}
	t.tokens = slices.Clone(v.tokens) // names that stand twice too
	return t, f, nil
}

// file returns the tokenizer.json.
func (v *vocabulary) file() (*file, error) {
	switch {
	case len(v.tokens) == 0:
		return nil, errors.New("tokenizer.ggml.tokens is missing")
	case len(v.types) > 0 && len(v.types) != len(v.tokens):
		return nil, fmt.Errorf("got %d types for %d tokens", len(v.types), len(v.tokens))
	}
	steps, err := v.steps()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, err
	}
	f.Model.Vocab = make(map[string]uint32, len(v.tokens))
	for id, token := range v.tokens {
		if _, ok := f.Model.Vocab[token]; !ok {
			f.Model.Vocab[token] = uint32(id)
		}
	}
	if err := v.merge(&f.Model); err != nil {
		return nil, err
	}
	for id, kind := range v.types {
		if kind == controlType || kind == userDefinedType {
			f.AddedTokens = append(f.AddedTokens, addedToken{ID: uint32(id), Content: v.tokens[id], Special: kind == controlType})
		}
	}
	return f, nil
}

// merge sets the merges of the model.
func (v *vocabulary) merge(m *model) error {
	if v.model == sentencePieceModel {
		if len(v.scores) != len(v.tokens) {
			return fmt.Errorf("got %d scores for %d tokens", len(v.scores), len(v.tokens))
		}
		m.Merges = scoredMerges(v.tokens, v.scores, m.Vocab)
		return nil
	}
	if v.merges == nil {
		return errors.New("tokenizer.ggml.merges is missing")
	}
	m.Merges = make([]mergeText, 0, len(v.merges))
	for _, text := range v.merges {
		a, b, ok := strings.Cut(text, " ")
		if !ok {
			return fmt.Errorf("merge %q is not a pair", text)
		}
		m.Merges = append(m.Merges, mergeText{a, b})
	}
	return nil
}

// longestPiece is the number of bytes of the longest token that merges make.
const longestPiece = 4096

// scoredMerges returns the pairs of tokens that make another token, that of the highest score
// first, and of equal scores the lowest ids.
//
// Tokens of more than longestPiece bytes are not merged: no vocabulary has them, and the time is
// quadratic in their length.
func scoredMerges(tokens []string, scores []float32, ids map[string]uint32) []mergeText {
	type pair struct {
		mergeText
		score       float32
		left, right uint32
	}
	var pairs []pair
	for id, token := range tokens {
		for at := range token {
			left, ok1 := ids[token[:at]]
			right, ok2 := ids[token[at:]]
			if at > 0 && ok1 && ok2 && len(token) <= longestPiece && utf8.ValidString(token) {
				pairs = append(pairs, pair{mergeText{token[:at], token[at:]}, scores[id], left, right})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	merges := make([]mergeText, len(pairs))
	for i, p := range pairs {
		merges[i] = p.mergeText
	}
	return merges
}
