package generation

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/tokenizer"
)

// maxSettings limits the sizes of files of settings, and of templates, which have up to 0.1 MB.
const maxSettings = 16 << 20

// TextOf reads how an open checkpoint, which may be on the hub, converts text to tokens and conversations to text.
func TextOf(c *hf.Checkpoint) (Text, error) { return readText(c, false) }

// readText reads the text of a model from the files of its checkpoint. bytes says that tokens of the
// model are bytes, so that there are no such files.
func readText(c *hf.Checkpoint, bytes bool) (t Text, err error) {
	switch {
	case bytes:
		return Text{Tokenizer: tokenizer.Bytes()}, nil
	case c.GGUF != nil:
		err = t.readGGUF(c.GGUF)
	default:
		err = t.readFiles(c)
	}
	return t, err
}

// readGGUF reads the metadata of a GGUF file.
func (t *Text) readGGUF(f *gguf.File) (err error) {
	if t.Tokenizer, err = tokenizer.FromGGUF(f.Value); err != nil {
		return err
	}
	t.Template, _ = f.Value("tokenizer.chat_template").(string)
	special, err := tokenizer.GGUFSpecial(f.Value)
	if err != nil {
		return err
	}
	for key, name := range llamacpp.SpecialTokens {
		if id, ok := special.IDs[name]; ok {
			t.setSpecial(key, id)
		}
	}
	for _, id := range special.Ends {
		t.addStops(int32(id))
	}
	if len(special.Retyped) > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("The file types %s as text. As in llama.cpp, it ends answers.",
			strings.Join(special.Retyped, ", ")))
	}
	return nil
}

// setSpecial sets a named token for templates.
func (t *Text) setSpecial(key string, id uint32) {
	token, err := t.Tokenizer.Token(id)
	if err != nil {
		return
	}
	switch key {
	case bosKey:
		t.BOS = token
	case eosKey:
		t.EOS = token
	default:
		if t.Special == nil {
			t.Special = map[string]string{}
		}
		t.Special[key] = token
	}
}

// Members of tokenizer_config.json for the tokens that begin and end a text.
const (
	bosKey = "bos_token"
	eosKey = "eos_token"
)

// settings are the members of config.json, generation_config.json and tokenizer_config.json that
// concern text.
type settings struct {
	EOS      ids       `json:"eos_token_id"`
	BOSToken content   `json:"bos_token"`
	EOSToken content   `json:"eos_token"`
	Template templates `json:"chat_template"`

	Unknown   content    `json:"unk_token"`
	Separator content    `json:"sep_token"`
	Padding   content    `json:"pad_token"`
	Class     content    `json:"cls_token"`
	Mask      content    `json:"mask_token"`
	Named     namedWords `json:"extra_special_tokens"`
	ModelOnly namedWords `json:"model_specific_special_tokens"`
}

// special returns the named tokens for templates, other than BOS and EOS.
func (s *settings) special() map[string]string {
	all := map[string]string{}
	for _, more := range []namedWords{s.Named, s.ModelOnly, {
		"unk_token": s.Unknown, "sep_token": s.Separator, "pad_token": s.Padding, "cls_token": s.Class, "mask_token": s.Mask,
	}} {
		for name, token := range more {
			if token != "" {
				all[name] = string(token)
			}
		}
	}
	return all
}

// readFiles reads the files beside the weights of a Hugging Face checkpoint.
func (t *Text) readFiles(c *hf.Checkpoint) error {
	var err error
	if t.Tokenizer, err = TokenizerOf(c); err != nil {
		return err
	}
	var all settings // later files add to the ids of earlier ones
	if err := all.parse("config.json", c.Config); err != nil {
		return err
	}
	for _, name := range []string{"generation_config.json", "special_tokens_map.json", "tokenizer_config.json"} {
		data, err := readFile(c, name, maxSettings)
		if err != nil {
			return err
		}
		if err := all.parse(name, data); err != nil {
			return err
		}
		if name == "generation_config.json" && data != nil {
			if err := json.Unmarshal(configjson.Standard(data), &t.Sampling); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	template, err := readFile(c, "chat_template.jinja", maxSettings)
	if err != nil {
		return err
	}
	t.Template, t.BOS, t.EOS, t.Special = string(all.Template), string(all.BOSToken), string(all.EOSToken), all.special()
	if template != nil {
		t.Template = string(template)
	}
	t.addStops(all.EOS...)
	if id, ok := t.Tokenizer.ID(t.EOS); ok && t.EOS != "" {
		t.addStops(int32(id))
	}
	if len(t.Stop) == 0 {
		t.guessStops()
	}
	return nil
}

// parse reads a file, unless it is nil.
func (s *settings) parse(name string, data []byte) error {
	if data == nil {
		return nil
	}
	if err := json.Unmarshal(configjson.Standard(data), s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readFile reads an auxiliary file of a checkpoint: nil if it does not exist.
func readFile(c *hf.Checkpoint, name string, limit int64) ([]byte, error) {
	for _, other := range c.Others() {
		if other.Name != name {
			continue
		}
		data, err := limits.ReadFile(other.Path, limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, limits.Cause(err))
		}
		return data, nil
	}
	return nil, nil
}

// ids is an id or a list of ids. Those of several files add up.
type ids []int32

// UnmarshalJSON adds the ids.
func (l *ids) UnmarshalJSON(data []byte) error {
	var one *int32
	if json.Unmarshal(data, &one) == nil {
		if one != nil {
			*l = append(*l, *one)
		}
		return nil
	}
	var list []int32
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("eos_token_id: want an integer or a list of integers")
	}
	*l = append(*l, list...)
	return nil
}

// content is a token: a string, or an object with its content.
type content string

// UnmarshalJSON reads a token. Other values are no token.
func (c *content) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(data, (*string)(c)) == nil || json.Unmarshal(data, &object) != nil {
		return nil
	}
	*c = content(object.Content)
	return nil
}

// namedWords are tokens by name. Older files have a list of tokens without names instead.
type namedWords map[string]content

// UnmarshalJSON reads an object. Other values name no tokens.
func (w *namedWords) UnmarshalJSON(data []byte) error {
	var named map[string]content
	if json.Unmarshal(data, &named) == nil {
		*w = named
	}
	return nil
}

// templates is a template, or a list of named ones, of which "default" is for chat.
type templates string

// UnmarshalJSON reads the template for chat.
func (t *templates) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(t)) == nil {
		return nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("chat_template: want a string or a list of named templates")
	}
	for _, named := range list {
		if named.Name == "default" {
			*t = templates(named.Template)
		}
	}
	return nil
}
