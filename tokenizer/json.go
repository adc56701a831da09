package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// file is a tokenizer.json.
type file struct {
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *step        `json:"normalizer"`
	PreTokenizer  *step        `json:"pre_tokenizer"`
	PostProcessor *step        `json:"post_processor"`
	Decoder       *step        `json:"decoder"`
	Model         model        `json:"model"`
}

// model is the part "model" of a tokenizer.json.
type model struct {
	Type                    string            `json:"type"`
	Vocab                   map[string]uint32 `json:"-"`
	RawVocab                json.RawMessage   `json:"vocab"` // a list in models other than BPE
	Merges                  []mergeText       `json:"merges"`
	ranks                   []uint32          // of merges; nil: their places
	UnkToken                *string           `json:"unk_token"`
	ContinuingSubwordPrefix *string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string           `json:"end_of_word_suffix"`
	Dropout                 *float64          `json:"dropout"`
	FuseUnk                 bool              `json:"fuse_unk"`
	ByteFallback            bool              `json:"byte_fallback"`
	IgnoreMerges            bool              `json:"ignore_merges"`
}

// A mergeText is a pair of tokens: "a b", or ["a", "b"] in newer files.
type mergeText [2]string

// UnmarshalJSON reads both forms.
func (m *mergeText) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var tokens []string
		if err := json.Unmarshal(data, &tokens); err != nil {
			return err
		}
		if len(tokens) != len(m) {
			return fmt.Errorf("merge %q is not a pair", tokens)
		}
		copy(m[:], tokens)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	a, b, ok := strings.Cut(text, " ")
	if !ok {
		return fmt.Errorf("merge %q is not a pair", text)
	}
	*m = mergeText{a, b}
	return nil
}

// A step is a normalizer, pre-tokenizer, post-processor or decoder. Each type has some of the
// fields.
type step struct {
	Type string `json:"type"`

	Normalizers   []*step `json:"normalizers"`
	PreTokenizers []*step `json:"pretokenizers"`
	Processors    []*step `json:"processors"`
	Decoders      []*step `json:"decoders"`

	Pattern          json.RawMessage `json:"pattern"`
	Content          string          `json:"content"`
	Behavior         string          `json:"behavior"`
	Invert           bool            `json:"invert"`
	IndividualDigits bool            `json:"individual_digits"`
	AddPrefixSpace   bool            `json:"add_prefix_space"`
	UseRegex         *bool           `json:"use_regex"` // nil: true
	Prepend          string          `json:"prepend"`
	Replacement      string          `json:"replacement"`
	PrependScheme    string          `json:"prepend_scheme"`
	Split            *bool           `json:"split"` // nil: true
	Start            int             `json:"start"`
	Stop             int             `json:"stop"`

	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct{} `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []uint32 `json:"ids"`
	} `json:"special_tokens"`
}

// textPattern is the field "pattern" of a step.
type textPattern struct{ Regex, String string }

func (s *step) pattern() (p textPattern, err error) {
	if s.Pattern == nil {
		return p, fmt.Errorf("the pattern of %s is missing", s.Type)
	}
	if err := json.Unmarshal(s.Pattern, &p); err != nil {
		return p, fmt.Errorf("pattern of %s: %w", s.Type, typeError(err))
	}
	return p, nil
}

// finder returns the search for the pattern of a step.
func (s *step) finder() (func(text string, at int) (from, to int), error) {
	p, err := s.pattern()
	switch {
	case err != nil:
		return nil, err
	case p.Regex == "":
		return findText(p.String), nil
	}
	if find, ok := scanners[p.Regex]; ok {
		return find, nil
	}
	compiled, err := compile(p.Regex)
	if err != nil {
		return nil, err
	}
	return compiled.find, nil
}

// flat returns the steps of a sequence, or the one that it is; none of nil.
func (s *step) flat() []*step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []*step{s}
	}
	var all []*step
	for _, list := range [][]*step{s.Normalizers, s.PreTokenizers, s.Processors, s.Decoders} {
		for _, inner := range list {
			all = append(all, inner.flat()...)
		}
	}
	return all
}

// Parse reads a tokenizer.json. A step or option that this package does not have is an error.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if len(data) == 0 {
		return nil, errors.New("tokenizer: the file is empty: want a tokenizer.json")
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", typeError(err))
	}
	t, err := f.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// jsonTypes describes the types of JSON by their names in package json.
var jsonTypes = map[string]string{"array": "a list", "object": "an object", "number": "a number", "string": "a string",
	"bool": "true or false"}

// goTypes describes what a file must have for a Go type.
var goTypes = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.String: "a string",
	reflect.Bool: "true or false", reflect.Uint32: "an integer of 0 or more", reflect.Int: "an integer", reflect.Float64: "a number",
}

// typeError describes a value of an unexpected type without the names of Go types.
func typeError(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	kind, got, ok := strings.Cut(e.Value, " ") // "number -1"
	if !ok {
		got = jsonTypes[kind]
	}
	field := ""
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Errorf("%swant %s, not %s", field, goTypes[e.Type.Kind()], got)
}

func (f *file) tokenizer() (*Tokenizer, error) {
	if err := f.Model.check(); err != nil {
		return nil, err
	}
	return f.build()
}

// build returns the tokenizer of a file whose vocabulary is read.
func (f *file) build() (*Tokenizer, error) {
	t := &Tokenizer{special: map[uint32]bool{}}
	for _, s := range f.Normalizer.flat() {
		n, err := newNormalizer(s)
		if err != nil {
			return nil, err
		}
		t.normalizers = append(t.normalizers, n)
	}
	if err := checkGrowth(t.normalizers); err != nil {
		return nil, err
	}
	byteLevel := false
	for _, s := range f.PreTokenizer.flat() {
		splitters, err := newSplitter(s)
		if err != nil {
			return nil, err
		}
		t.splitters = append(t.splitters, splitters...)
		byteLevel = byteLevel || s.Type == "ByteLevel"
	}
	if err := t.setTokens(f); err != nil {
		return nil, err
	}
	var err error
	if t.model, err = newBPE(&f.Model, byteLevel); err != nil {
		return nil, err
	}
	if err := t.setProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	t.decoder, err = newDecoder(f.Decoder)
	return t, err
}

// check returns an error for unsupported parts of a model, and reads its vocabulary.
func (m *model) check() error {
	switch {
	case m.Type == "" && m.RawVocab == nil:
		return errors.New("\"model\" is missing: want a tokenizer.json of Hugging Face")
	case m.Type != "" && m.Type != "BPE":
		return fmt.Errorf("model %q is not supported: want BPE", m.Type)
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("continuing_subword_prefix %q is not supported", *m.ContinuingSubwordPrefix)
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		return fmt.Errorf("end_of_word_suffix %q is not supported", *m.EndOfWordSuffix)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("dropout %g is not supported", *m.Dropout)
	case m.RawVocab == nil || string(m.RawVocab) == "null":
		return errors.New("the vocabulary is missing")
	}
	if err := json.Unmarshal(m.RawVocab, &m.Vocab); err != nil {
		return fmt.Errorf("vocabulary: %w", typeError(err))
	}
	return nil
}

// maxTokens limits ids, so that a damaged file does not take all memory.
const maxTokens = 1 << 24

// setTokens collects the tokens of the vocabulary and the added ones.
func (t *Tokenizer) setTokens(f *file) error {
	t.ids = make(map[string]uint32, len(f.Model.Vocab)+len(f.AddedTokens))
	add := func(token string, id uint32) error {
		if id >= maxTokens {
			return fmt.Errorf("token %q has id %d: want less than %d", token, id, maxTokens)
		}
		for int(id) >= len(t.tokens) {
			t.tokens = append(t.tokens, make([]string, int(id)+1-len(t.tokens))...)
		}
		t.tokens[id], t.ids[token] = token, id
		return nil
	}
	duplicate := none // the lowest
	for token, id := range f.Model.Vocab {
		if uint64(id) < uint64(len(t.tokens)) && t.tokens[id] != "" {
			duplicate = min(duplicate, id)
		}
		if err := add(token, id); err != nil {
			return err
		}
	}
	if duplicate != none {
		var tokens []string
		for token, id := range f.Model.Vocab {
			if id == duplicate {
				tokens = append(tokens, token)
			}
		}
		slices.Sort(tokens)
		return fmt.Errorf("tokens %q and %q have the same id %d", tokens[0], tokens[1], duplicate)
	}
	var raw, normalized []addedToken
	for _, a := range f.AddedTokens {
		if err := add(a.Content, a.ID); err != nil {
			return err
		}
		if a.Special {
			t.special[a.ID] = true
		}
		if a.Normalized {
			for _, n := range t.normalizers {
				a.Content = n.normalize(a.Content)
			}
			t.tokens[a.ID] = a.Content // Python's tokenizers decodes it so
			normalized = append(normalized, a)
		} else {
			raw = append(raw, a)
		}
	}
	t.raw, t.normalized = newMatcher(raw), newMatcher(normalized)
	return nil
}

// setProcessor reads which tokens begin and end a text.
func (t *Tokenizer) setProcessor(s *step) error {
	for _, s := range s.flat() {
		switch s.Type {
		case "ByteLevel": // changes offsets only
		case "TemplateProcessing":
			list := &t.before
			for _, part := range s.Single {
				if part.SpecialToken == nil {
					list = &t.after
					continue
				}
				ids := s.SpecialTokens[part.SpecialToken.ID].IDs
				if len(ids) == 0 {
					return fmt.Errorf("post-processor: no ids of token %q", part.SpecialToken.ID)
				}
				if id := slices.Max(ids); uint64(id) >= uint64(len(t.tokens)) {
					return fmt.Errorf("post-processor: token %q has id %d: want less than %d", part.SpecialToken.ID, id, len(t.tokens))
				}
				*list = append(*list, ids...)
			}
		default:
			return fmt.Errorf("unknown post-processor %q", s.Type)
		}
	}
	return nil
}

// newBPE returns the model. The vocabulary of byteLevel is written in characters for bytes.
func newBPE(m *model, byteLevel bool) (*bpe, error) {
	b := &bpe{
		merges: make(map[[2]uint32]merge, len(m.Merges)), words: m.Vocab, byteLevel: byteLevel,
		wholeWords: m.IgnoreMerges, byteFallback: m.ByteFallback, fuseUnknown: m.FuseUnk, unknown: none, innerSpaces: byteLevel,
	}
	for i := range b.byteIDs {
		token := string(byteRunes[i])
		if !byteLevel {
			token = fmt.Sprintf("<0x%02X>", i)
		}
		b.byteIDs[i] = none
		if id, ok := m.Vocab[token]; ok {
			b.byteIDs[i] = id
		}
	}
	if m.UnkToken != nil {
		if id, ok := m.Vocab[*m.UnkToken]; ok {
			b.unknown = id
		} else if *m.UnkToken != "" {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", *m.UnkToken)
		}
	}
	for i, pair := range m.Merges {
		left, ok1 := m.Vocab[pair[0]]
		right, ok2 := m.Vocab[pair[1]]
		id, ok3 := m.Vocab[pair[0]+pair[1]]
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("merge %d, %q and %q: not in the vocabulary", i, pair[0], pair[1])
		}
		rank := uint32(i)
		if m.ranks != nil {
			rank = m.ranks[i]
		}
		b.merges[[2]uint32{left, right}] = merge{rank, id}
		b.innerSpaces = b.innerSpaces || strings.Contains(strings.TrimLeft(pair[0]+pair[1], space), space)
	}
	if byteLevel && m.IgnoreMerges {
		b.words = make(map[string]uint32, len(m.Vocab))
		for token, id := range m.Vocab {
			b.words[string(appendBytes(nil, token))] = id
		}
	}
	return b, nil
}

// newDecoder recognizes the decoders that files have.
func newDecoder(s *step) (d decoder, err error) {
	for _, s := range s.flat() {
		switch s.Type {
		case "ByteLevel":
			d.byteLevel = true
		case "Metaspace":
			d.replacement = s.Replacement
			if s.PrependScheme != "never" && (s.PrependScheme != "" || s.AddPrefixSpace) {
				d.strip = stripToken
			}
		case "Replace":
			p, err := s.pattern()
			if err != nil || p.Regex != "" || s.Content != " " || p.String == "" {
				return d, fmt.Errorf("unknown decoder: Replace of %s by %q", s.Pattern, s.Content)
			}
			d.replacement = p.String
		case "ByteFallback":
			d.fallback = true
		case "Fuse":
		case "Strip":
			if s.Content != " " || s.Start != 1 || s.Stop != 0 {
				return d, fmt.Errorf("unknown decoder: Strip of %d and %d %q", s.Start, s.Stop, s.Content)
			}
			d.strip = stripOne
		default:
			return d, fmt.Errorf("unknown decoder %q", s.Type)
		}
	}
	if !d.byteLevel && d.replacement == "" {
		return d, fmt.Errorf("no decoder that writes spaces")
	}
	return d, nil
}
