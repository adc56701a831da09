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
	model  string    // byteLevelModel, sentencePieceModel or gemma4Model
	pre    string    // the name of the pre-tokenizer, unless the model is llama
	tokens []string  // by id
	types  []int32   // by id; nil: all normal
	merges []string  // unless the model is llama
	scores []float32 // of llama; nil: all equal

	ids            map[string]*uint32 // special tokens by the names of their keys: bos, eos, eot, …
	addBOS, addEOS *bool
	spacePrefix    *bool  // nil or true: llama puts a space before a text
	name           string // general.name
	chatTemplate   string

	retyped []uint32 // tokens that end an answer, which the file types as text
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
	v.ids = map[string]*uint32{}
	for _, name := range specialNames {
		var id *uint32
		if read(name+"_token_id", intoPointer(&id)); id != nil {
			v.ids[name] = id
		}
	}
	read("add_bos_token", intoPointer(&v.addBOS))
	read("add_eos_token", intoPointer(&v.addEOS))
	read("add_space_prefix", intoPointer(&v.spacePrefix))
	v.name, _ = value("general.name").(string)
	v.chatTemplate, _ = value("tokenizer.chat_template").(string)
	if v.model == gemma4Model {
		v.pre = gemma4Model
	}
	if err == nil && len(v.types) > 0 && len(v.types) < len(v.tokens) {
		err = fmt.Errorf("got %d types for %d tokens", len(v.types), len(v.tokens))
	}
	if v.types = v.types[:min(len(v.types), len(v.tokens))]; len(v.types) == 0 {
		v.types = nil // an empty list types nothing
	}
	if err == nil {
		v.retype()
	}
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
	gemma4Model        = "gemma4" // BPE on characters, with merges
)

// Types of tokens in GGUF files.
const (
	normalType      = 1
	unknownType     = 2
	controlType     = 3
	userDefinedType = 4
)

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
	if len(v.tokens) == 0 {
		return nil, errors.New("tokenizer.ggml.tokens is missing")
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
	swallows := v.swallowSpace()
	for id := range v.tokens {
		switch kind := v.kind(uint32(id)); kind {
		case controlType, userDefinedType, unknownType:
			token := addedToken{ID: uint32(id), Content: v.tokens[id], Special: kind != userDefinedType}
			token.RStrip = swallows && !slices.Contains(keptSpace, token.Content)
			f.AddedTokens = append(f.AddedTokens, token)
		}
	}
	return f, nil
}

// keptSpace are the special tokens of Phi-3 that white space may follow.
var keptSpace = []string{"<unk>", "<s>", "<|endoftext|>"}

// swallowSpace reports whether special tokens swallow the white space after them, as those of Phi-3
// do. GGUF files do not say so. llama.cpp recognizes the models by their name.
func (v *vocabulary) swallowSpace() bool {
	name := strings.ToLower(v.name)
	return strings.Contains(name, "phi-3") || strings.Contains(name, "phi3")
}

// merge sets the merges of the model.
func (v *vocabulary) merge(m *model) error {
	if v.model == sentencePieceModel {
		scores := v.scores
		if scores == nil {
			scores = make([]float32, len(v.tokens))
		}
		if len(scores) < len(v.tokens) {
			return fmt.Errorf("got %d scores for %d tokens", len(scores), len(v.tokens))
		}
		m.Merges, m.ranks = scoredMerges(v.tokens, scores, m.Vocab)
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
// first, and of equal scores the lowest ids, with their ranks: equal ones for equal scores.
//
// Tokens of more than longestPiece bytes are not merged: no vocabulary has them, and the time is
// quadratic in their length.
func scoredMerges(tokens []string, scores []float32, ids map[string]uint32) ([]mergeText, []uint32) {
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
	merges, ranks := make([]mergeText, len(pairs)), make([]uint32, len(pairs))
	for i, p := range pairs {
		merges[i], ranks[i] = p.mergeText, uint32(i)
		if i > 0 && p.score == pairs[i-1].score {
			ranks[i] = ranks[i-1]
		}
	}
	return merges, ranks
}
