package llamacpp

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/tokenizer"
)

// A step is a normalizer, a pre_tokenizer or a post_processor of a tokenizer.json.
type step struct {
	Type string `json:"type"`

	Normalizers   []*step `json:"normalizers"`   // Sequence
	PreTokenizers []*step `json:"pretokenizers"` // Sequence
	Processors    []*step `json:"processors"`    // Sequence

	Pattern  json.RawMessage `json:"pattern"`  // Split, Replace
	Content  string          `json:"content"`  // Replace
	Behavior string          `json:"behavior"` // Split
	Invert   bool            `json:"invert"`   // Split

	IndividualDigits bool  `json:"individual_digits"` // Digits
	AddPrefixSpace   bool  `json:"add_prefix_space"`  // ByteLevel, Metaspace
	UseRegex         *bool `json:"use_regex"`         // ByteLevel; default true

	Prepend       string `json:"prepend"`        // Prepend
	Replacement   string `json:"replacement"`    // Metaspace
	PrependScheme string `json:"prepend_scheme"` // Metaspace

	Single []struct { // TemplateProcessing
		Special struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
}

// flat returns the steps of a Sequence, or the step itself; nil for nil.
func (s *step) flat() []*step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []*step{s}
	}
	var all []*step
	for _, list := range [][]*step{s.Normalizers, s.PreTokenizers, s.Processors} {
		for _, inner := range list {
			all = append(all, inner.flat()...)
		}
	}
	return all
}

// pattern returns the regular expression or the text that a step matches.
func (s *step) pattern() string {
	var p struct{ Regex, String string }
	_ = json.Unmarshal(s.Pattern, &p) // any other value matches no row
	if p.Regex != "" {
		return lineEnds.Replace(p.Regex)
	}
	return "text " + p.String
}

// lineEnds writes line ends in regular expressions as escapes. Files have either.
var lineEnds = strings.NewReplacer("\r", `\r`, "\n", `\n`)

// String describes the step in one line.
func (s *step) String() string {
	switch s.Type {
	case "Split":
		text := s.Type + " " + s.Behavior + " " + s.pattern()
		if s.Invert {
			text += " inverted"
		}
		return text
	case "Digits":
		if s.IndividualDigits {
			return "Digits individually"
		}
	case "ByteLevel":
		text := s.Type
		if s.UseRegex == nil || *s.UseRegex {
			text += " with regex"
		}
		if s.AddPrefixSpace {
			text += " with prefix"
		}
		return text
	case "Replace":
		return s.Type + " " + s.pattern() + " by " + s.Content
	case "Prepend":
		return s.Type + " " + s.Prepend
	case "Metaspace":
		return fmt.Sprintf("%s %s %s", s.Type, s.Replacement, s.PrependScheme)
	}
	return s.Type
}

// signature describes a sequence of steps.
func signature(steps ...*step) string {
	var texts []string
	for _, s := range steps {
		for _, inner := range s.flat() {
			texts = append(texts, inner.String())
		}
	}
	return strings.Join(texts, ", ")
}

// preTokenizerNames are names of pre-tokenizers in llama.cpp, of which package tokenizer has the steps. Of names with the
// same steps, the first is written.
var preTokenizerNames = []string{
	"gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3",
	"seed-coder", "exaone-moe", "minicpm5", "laguna", "ufakzeka", "jais-2", "spark2_5", "tiny_aya",
}

// A division is how a tokenizer.json divides text.
type division struct {
	steps      string // the signature of the pre-tokenizer
	wholeWords bool   // ignore_merges
}

// preTokenizers returns the names by what they mean.
var preTokenizers = sync.OnceValues(func() (map[division]string, error) {
	names := map[division]string{}
	for _, name := range preTokenizerNames {
		metadata := map[string]any{"model": bytePairs, "pre": name, "tokens": []string{"a"}, "merges": []string{}, "add_bos_token": false}
		data, err := tokenizer.GGUFToJSON(func(key string) any { return metadata[strings.TrimPrefix(key, "tokenizer.ggml.")] })
		if err != nil {
			return nil, err
		}
		var t tokenizerJSON
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, err
		}
		names[t.division()] = name
	}
	return names, nil
})

func (t *tokenizerJSON) division() division {
	return division{signature(t.PreTokenizer), t.Model.WholeWords}
}

// preTokenizer returns llama.cpp's name of the pre-tokenizer. It ignores NFC, the normalizer of
// Qwen, as llama.cpp does: text is nearly always in that form. If llama.cpp has the steps only with other
// merging of words that are tokens, it returns that name.
func preTokenizer(t tokenizerJSON) (string, error) {
	if n := signature(t.Normalizer); n != "" && n != "NFC" {
		return "", fmt.Errorf("llama.cpp does not run its normalizer (%s)", n)
	}
	names, err := preTokenizers()
	if err != nil {
		return "", err
	}
	d := t.division()
	if pre, ok := names[d]; ok {
		return pre, nil
	}
	if pre, ok := names[division{d.steps, !d.wholeWords}]; ok {
		return pre, nil
	}
	return "", fmt.Errorf("llama.cpp is not known to split text in this way: %s", d.steps)
}

// spaces reports whether the steps only encode spaces as SentencePiece does, and whether a text
// is prefixed with a space.
func spaces(normalizer, pre *step) (prefix, ok bool) {
	switch signature(normalizer, pre) {
	case "Prepend ▁, Replace text   by ▁", "Metaspace ▁ first", "Metaspace ▁ always":
		return true, true
	case "Replace text   by ▁", "Metaspace ▁ never":
		return false, true
	case "Metaspace ▁ ": // older files have add_prefix_space instead
		return pre.AddPrefixSpace, true
	}
	return false, false
}
