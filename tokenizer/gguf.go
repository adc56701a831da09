package tokenizer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// A vocabulary is what the metadata of a GGUF file says about a tokenizer.
type vocabulary struct {
	model  string    // gpt2 (byte-level BPE) or llama (SentencePiece BPE)
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
	patterns   []string
	digits     bool // each digit alone, before the patterns
	nfc        bool
	wholeWords bool
}

var preTokenizers = map[string]preTokenizer{
	"gpt-2":       {patterns: []string{gpt2Words}},
	"smollm":      {patterns: []string{gpt2Words}, digits: true},
	"starcoder":   {patterns: []string{gpt2Words}, digits: true},
	"llama-bpe":   {patterns: []string{llama3Words}, wholeWords: true},
	"qwen2":       {patterns: []string{qwen2Words}, nfc: true},
	"qwen35":      {patterns: []string{qwen35Words}, nfc: true},
	"tekken":      {patterns: []string{tekkenWords}, wholeWords: true},
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
	t, err := v.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func (v *vocabulary) tokenizer() (*Tokenizer, error) {
	f := file{Model: model{Vocab: make(map[string]uint32, len(v.tokens))}}
	if len(v.types) > 0 && len(v.types) != len(v.tokens) {
		return nil, fmt.Errorf("got %d types for %d tokens", len(v.types), len(v.tokens))
	}
	for id, token := range v.tokens {
		if _, ok := f.Model.Vocab[token]; !ok {
			f.Model.Vocab[token] = uint32(id)
		}
	}
	t := &Tokenizer{special: map[uint32]bool{}}
	var err error
	switch v.model {
	case "gpt2":
		err = v.byteLevel(t, &f)
	case "llama":
		err = v.sentencePiece(t, &f)
	default:
		err = fmt.Errorf("model %q is not supported: want gpt2 or llama", v.model)
	}
	if err != nil {
		return nil, err
	}
	for id, kind := range v.types {
		if kind == controlType || kind == userDefinedType {
			f.AddedTokens = append(f.AddedTokens, addedToken{ID: uint32(id), Content: v.tokens[id], Special: kind == controlType})
		}
	}
	if err := t.setTokens(&f); err != nil {
		return nil, err
	}
	t.tokens = slices.Clone(v.tokens) // names that stand twice too
	for _, end := range []struct {
		id   *uint32
		add  bool
		list *[]uint32
	}{{v.bos, v.addsBOS(), &t.before}, {v.eos, v.addEOS != nil && *v.addEOS, &t.after}} {
		switch {
		case !end.add:
		case end.id == nil || int(*end.id) >= len(v.tokens):
			return nil, fmt.Errorf("the file adds a token that it does not name")
		default:
			*end.list = []uint32{*end.id}
		}
	}
	t.model, err = newBPE(&f.Model, v.model == "gpt2")
	return t, err
}

// addsBOS reports whether a text begins with the token for that: by default those of llama do.
func (v *vocabulary) addsBOS() bool {
	if v.addBOS == nil {
		return v.model == "llama"
	}
	return *v.addBOS
}

// byteLevel sets what models of the kind of GPT-2 have.
func (v *vocabulary) byteLevel(t *Tokenizer, f *file) error {
	pre, ok := preTokenizers[v.pre]
	if !ok {
		return fmt.Errorf("pre-tokenizer %q is not known: want one of %s", v.pre, strings.Join(slices.Sorted(maps.Keys(preTokenizers)), ", "))
	}
	if pre.nfc {
		t.normalizers = []normalizer{nfc{}}
	}
	if pre.digits {
		t.splitters = append(t.splitters, patternSplit{find: findDigit, behavior: isolated})
	}
	for _, expression := range pre.patterns {
		p, err := compile(expression)
		if err != nil {
			return err
		}
		t.splitters = append(t.splitters, patternSplit{find: p.find, behavior: isolated})
	}
	f.Model.IgnoreMerges = pre.wholeWords
	for _, text := range v.merges {
		a, b, ok := strings.Cut(text, " ")
		if !ok {
			return fmt.Errorf("merge %q is not a pair", text)
		}
		f.Model.Merges = append(f.Model.Merges, mergeText{a, b})
	}
	t.decoder = decoder{byteLevel: true}
	return nil
}

// sentencePiece sets what models of the kind of Llama 2 have.
func (v *vocabulary) sentencePiece(t *Tokenizer, f *file) error {
	if len(v.scores) != len(v.tokens) {
		return fmt.Errorf("got %d scores for %d tokens", len(v.scores), len(v.tokens))
	}
	t.decoder = decoder{replacement: space, fallback: true}
	if v.spacePrefix == nil || *v.spacePrefix {
		t.normalizers = append(t.normalizers, prepend{space})
		t.decoder.strip = stripOne
	}
	t.normalizers = append(t.normalizers, replace{" ", space})
	f.Model.ByteFallback, f.Model.FuseUnk = true, true
	if id := slices.Index(v.types, unknownType); id >= 0 {
		f.Model.UnkToken = &v.tokens[id]
	}
	f.Model.Merges = scoredMerges(v.tokens, v.scores, f.Model.Vocab)
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
