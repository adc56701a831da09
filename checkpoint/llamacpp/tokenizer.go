package llamacpp

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Kinds of tokenizers in llama.cpp.
const (
	bytePairs      = "gpt2"  // BPE on bytes
	characterPairs = "llama" // BPE on characters; other characters become bytes
)

// tokenizerJSON has the members of tokenizer.json, of the library tokenizers, that are read.
type tokenizerJSON struct {
	AddedTokens []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer   *step `json:"normalizer"`
	PreTokenizer *step `json:"pre_tokenizer"`
	Post         *step `json:"post_processor"`
	Model        struct {
		Type                    string          `json:"type"`
		Vocab                   map[string]int  `json:"vocab"`
		Merges                  json.RawMessage `json:"merges"`
		ByteFallback            bool            `json:"byte_fallback"`
		WholeWords              bool            `json:"ignore_merges"`
		Unknown                 string          `json:"unk_token"`
		ContinuingSubwordPrefix string          `json:"continuing_subword_prefix"`
		EndOfWordSuffix         string          `json:"end_of_word_suffix"`
	} `json:"model"`
}

// parse sets the vocabulary from a tokenizer.json.
func (v *vocabulary) parse(text []byte, s settings) error {
	var t tokenizerJSON
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("tokenizer.json: "+format, args...)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return invalid("parse it: %w", err)
	}
	if t.Model.Type != "BPE" && (t.Model.Type != "" || t.Model.Merges == nil) {
		return invalid("a tokenizer of type %q is not written as GGUF, only BPE", t.Model.Type)
	}
	if t.Model.ContinuingSubwordPrefix != "" || t.Model.EndOfWordSuffix != "" {
		return invalid("BPE that marks the ends of words is not run by llama.cpp")
	}
	if err := v.list(t); err != nil {
		return invalid("%w", err)
	}
	merges, err := parseMerges(t.Model.Merges)
	if err != nil {
		return invalid("%w", err)
	}
	if t.Model.ByteFallback {
		err = v.characters(t, merges)
	} else {
		v.model, v.merges = bytePairs, merges
		v.pre, err = preTokenizer(t)
	}
	if err != nil {
		return invalid("%w", err)
	}
	v.ends(t.Post, s)
	return nil
}

// list sets the tokens and their types.
func (v *vocabulary) list(t tokenizerJSON) error {
	size := 0
	for _, id := range t.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range t.AddedTokens {
		size = max(size, a.ID+1)
	}
	if limit := 2 * (len(t.Model.Vocab) + len(t.AddedTokens) + 1<<16); size > limit {
		return fmt.Errorf("a token has the number %d, and there are %d tokens: fetch it again", size-1, len(t.Model.Vocab)+len(t.AddedTokens))
	}
	v.tokens, v.types = make([]string, size), make([]int32, size)
	for token, id := range t.Model.Vocab {
		if id < 0 || id >= size || v.types[id] != 0 {
			return fmt.Errorf("the number %d of token %q is negative, too large or that of another: fetch it again", id, token)
		}
		v.tokens[id], v.types[id] = token, normalToken
	}
	for _, a := range t.AddedTokens {
		if a.ID < 0 || a.ID >= size || v.types[a.ID] != 0 && v.tokens[a.ID] != a.Content {
			return fmt.Errorf("the number %d of added token %q is negative, too large or that of another: fetch it again", a.ID, a.Content)
		}
		v.tokens[a.ID], v.types[a.ID] = a.Content, userToken
		if a.Special {
			v.types[a.ID] = controlToken
		}
	}
	return nil
}

// parseMerges returns the merges as pairs separated by a space. Newer files have them as arrays
// of two strings.
func parseMerges(raw json.RawMessage) ([]string, error) {
	var pairs [][]string
	merges := []string{}
	if json.Unmarshal(raw, &merges) != nil {
		if err := json.Unmarshal(raw, &pairs); err != nil {
			return nil, fmt.Errorf("parse the merges: %w", err)
		}
		merges = merges[:0]
		for _, p := range pairs {
			merges = append(merges, strings.Join(p, " "))
		}
	}
	for _, m := range merges {
		if left, right, ok := strings.Cut(m, " "); !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return nil, fmt.Errorf("the merge %q is not two parts without spaces: fetch it again", m)
		}
	}
	return merges, nil
}

// space represents a space in a vocabulary of characters.
const space = "▁"

// characters sets a vocabulary of SentencePiece's kind. llama.cpp merges the pair whose result
// has the highest score; the score is minus the index of the merge.
func (v *vocabulary) characters(t tokenizerJSON, merges []string) error {
	prefix, ok := spaces(t.Normalizer, t.PreTokenizer)
	if !ok {
		return fmt.Errorf("BPE with byte_fallback whose normalizer and pre_tokenizer do more than write spaces as %s is not recognized: %s",
			space, signature(t.Normalizer, t.PreTokenizer))
	}
	v.model, v.pre, v.addSpace = characterPairs, "default", &prefix
	v.scores = make([]float32, len(v.tokens))
	number := map[string]int{}
	for i, m := range merges {
		made := strings.Replace(m, " ", "", 1)
		if _, earlier := number[made]; !earlier {
			number[made] = i
		}
	}
	for id, token := range v.tokens {
		n, ok := number[token]
		if !ok {
			n = len(merges) + id
		}
		v.scores[id] = -float32(n)
		if isByteToken(token) {
			v.types[id] = byteToken
		}
	}
	if v.unknown = v.find(t.Model.Unknown); v.unknown >= 0 {
		v.types[v.unknown] = unknownToken
	}
	for b := range 256 {
		if v.find(fmt.Sprintf("<0x%02X>", b)) < 0 {
			return fmt.Errorf("byte_fallback without a token for byte %d is not run by llama.cpp", b)
		}
	}
	return nil
}

func isByteToken(token string) bool {
	return len(token) == len("<0x00>") && strings.HasPrefix(token, "<0x") && strings.HasSuffix(token, ">")
}

// ends sets addBOS and addEOS if the template of the post-processor determines them.
func (v *vocabulary) ends(post *step, s settings) {
	for _, p := range post.flat() {
		if p.Type != "TemplateProcessing" || len(p.Single) < 2 {
			continue
		}
		first, last := p.Single[0].Special.ID, p.Single[len(p.Single)-1].Special.ID
		begins, ends := first != "" && first == string(s.BOS), last != "" && last == string(s.EOS)
		v.addBOS, v.addEOS = &begins, &ends
	}
}
