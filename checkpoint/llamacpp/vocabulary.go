package llamacpp

import (
	"encoding/json"
	"fmt"

	"github.com/microscale-go/microscale/hf"
)

// Types of tokens (enum llama_token_type in llama.cpp).
const (
	normalToken  int32 = 1
	unknownToken int32 = 2
	controlToken int32 = 3
	userToken    int32 = 4
	unusedToken  int32 = 5
	byteToken    int32 = 6
)

// A vocabulary is a tokenizer in the terms of llama.cpp. Missing token ids are -1.
type vocabulary struct {
	model  string // bytePairs or characterPairs
	pre    string // the pre-tokenizer; for bytePairs
	tokens []string
	types  []int32
	scores []float32 // for characterPairs
	merges []string  // for bytePairs

	bos, eos, unknown, pad int
	addBOS, addEOS         *bool // whether every text begins and ends with these tokens; nil if unknown
	addSpace               *bool // before every text; for characterPairs
}

// vocabulary adds the metadata keys of the tokenizer.
func (m *Model) vocabulary(c *hf.Checkpoint) error {
	settings, err := readSettings(c)
	if err != nil {
		return err
	}
	text, err := readOther(c, "tokenizer.json")
	if err != nil {
		return err
	}
	v := &vocabulary{bos: -1, eos: -1, unknown: -1, pad: -1}
	switch {
	case text != nil:
		err = v.parse(text, settings)
	case m.config.Microscale.Vocabulary == byteVocabulary:
		err = v.bytes(nil, m.config.VocabSize)
	case settings.Class == byT5Class:
		err = v.bytes(byT5Specials, m.config.VocabSize)
	case has(c, "tokenizer.model"), has(c, "vocab.json"), has(c, "tekken.json"):
		return fmt.Errorf("its tokenizer is not in tokenizer.json: load it with transformers' AutoTokenizer and save_pretrained it here")
	default:
		m.Notes = append(m.Notes, "there is no tokenizer, so llama.cpp accepts token ids but no text")
		m.add("tokenizer.ggml.model", "none")
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.complete(m.config, settings); err != nil {
		return err
	}
	m.write(v)
	template, err := chatTemplate(c, settings)
	if err == nil && template != "" {
		m.add("tokenizer.chat_template", template)
	}
	return err
}

func has(c *hf.Checkpoint, name string) bool {
	for _, other := range c.Others() {
		if other.Name == name {
			return true
		}
	}
	return false
}

// write adds the metadata keys of a vocabulary.
func (m *Model) write(v *vocabulary) {
	m.add("tokenizer.ggml.model", v.model)
	m.add("tokenizer.ggml.pre", v.pre)
	m.add("tokenizer.ggml.tokens", v.tokens)
	if v.scores != nil {
		m.add("tokenizer.ggml.scores", v.scores)
	}
	m.add("tokenizer.ggml.token_type", v.types)
	if v.model == bytePairs {
		m.add("tokenizer.ggml.merges", v.merges)
	}
	for _, special := range []struct {
		key string
		id  int
	}{{"bos", v.bos}, {"eos", v.eos}, {"unknown", v.unknown}, {"padding", v.pad}} {
		if special.id >= 0 {
			m.add("tokenizer.ggml."+special.key+"_token_id", uint32(special.id))
		}
	}
	for _, option := range []struct {
		key   string
		value *bool
	}{{"add_bos_token", v.addBOS}, {"add_eos_token", v.addEOS}, {"add_space_prefix", v.addSpace}} {
		if option.value != nil {
			m.add("tokenizer.ggml."+option.key, *option.value)
		}
	}
}

// complete adds unused tokens up to the number of rows of the embeddings. It takes what
// tokenizer.json lacks from tokenizer_config.json and config.json.
func (v *vocabulary) complete(c config, s settings) error {
	for n := len(v.tokens); n > c.VocabSize && v.types[n-1] == controlToken; n-- { // the embeddings have no rows for them
		v.tokens, v.types = v.tokens[:n-1], v.types[:n-1]
		if v.scores != nil {
			v.scores = v.scores[:n-1]
		}
	}
	if len(v.tokens) > c.VocabSize {
		return fmt.Errorf("the tokenizer has %d tokens and the model %d: they do not belong together", len(v.tokens), c.VocabSize)
	}
	for i := len(v.tokens); i < c.VocabSize; i++ {
		v.tokens, v.types = append(v.tokens, fmt.Sprintf("[PAD%d]", i)), append(v.types, unusedToken)
		if v.scores != nil {
			v.scores = append(v.scores, v.scores[0]-float32(i))
		}
	}
	for i, t := range v.tokens {
		if t == "" && v.types[i] == 0 {
			v.tokens[i], v.types[i] = fmt.Sprintf("[PAD%d]", i), unusedToken
		}
	}
	for _, special := range []struct {
		id    *int
		token settingsToken
		ids   tokenIDs
	}{{&v.bos, s.BOS, c.BOS}, {&v.eos, s.EOS, c.EOS}, {&v.unknown, s.Unknown, nil}, {&v.pad, s.Pad, c.Pad}} {
		if id := v.find(string(special.token)); id >= 0 {
			*special.id = id
		} else if *special.id < 0 && len(special.ids) > 0 && int(special.ids[0]) < len(v.tokens) {
			*special.id = int(special.ids[0])
		}
	}
	if s.AddBOS != nil {
		v.addBOS = s.AddBOS
	}
	if s.AddEOS != nil {
		v.addEOS = s.AddEOS
	}
	return nil
}

// find returns the id of a token, -1 if there is none or the text is empty.
func (v *vocabulary) find(token string) int {
	if token != "" {
		for i, t := range v.tokens {
			if t == token {
				return i
			}
		}
	}
	return -1
}

// settings has the members of tokenizer_config.json that are read.
type settings struct {
	Class    string          `json:"tokenizer_class"`
	BOS      settingsToken   `json:"bos_token"`
	EOS      settingsToken   `json:"eos_token"`
	Unknown  settingsToken   `json:"unk_token"`
	Pad      settingsToken   `json:"pad_token"`
	AddBOS   *bool           `json:"add_bos_token"`
	AddEOS   *bool           `json:"add_eos_token"`
	Template json.RawMessage `json:"chat_template"`
}

// A settingsToken is the text of a token. In JSON it is a string, or an object with the text as
// content.
type settingsToken string

// UnmarshalJSON parses either form.
func (t *settingsToken) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if len(data) > 0 && data[0] == '{' {
		err := json.Unmarshal(data, &object)
		*t = settingsToken(object.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(t))
}

func readSettings(c *hf.Checkpoint) (s settings, err error) {
	const name = "tokenizer_config.json"
	text, err := readOther(c, name)
	if err == nil && text != nil {
		if err = json.Unmarshal(text, &s); err != nil {
			err = fmt.Errorf("parse %s: %w", name, err)
		}
	}
	return s, err
}

// chatTemplate returns the chat template: that of chat_template.jinja, else that of
// tokenizer_config.json, the one named default if there are several.
func chatTemplate(c *hf.Checkpoint, s settings) (string, error) {
	if text, err := readOther(c, "chat_template.jinja"); text != nil || err != nil {
		return string(text), err
	}
	var one string
	if json.Unmarshal(s.Template, &one) == nil {
		return one, nil
	}
	var several []struct{ Name, Template string }
	_ = json.Unmarshal(s.Template, &several) // any other value is no template
	for _, t := range several {
		if t.Name == "default" {
			return t.Template, nil
		}
	}
	return "", nil
}
