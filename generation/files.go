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

// readText reads the text of a model from the files of its checkpoint. bytes says that tokens of the
// model are bytes, so that there are no such files.
func readText(c *hf.Checkpoint, bytes bool) (t Text, err error) {
	switch {
	case bytes:
		return Text{Tokenizer: tokenizer.Bytes()}, nil
	case strings.HasSuffix(c.Path, llamacpp.Suffix):
		err = t.readGGUF(c.Path)
	default:
		err = t.readFiles(c)
	}
	return t, err
}

// readGGUF reads the metadata of a GGUF file.
func (t *Text) readGGUF(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if t.Tokenizer, err = tokenizer.FromGGUF(f.Value); err != nil {
		return err
	}
	t.Template, _ = f.Value("tokenizer.chat_template").(string)
	t.BOS = t.tokenOf(f.Value("tokenizer.ggml.bos_token_id"))
	t.EOS = t.tokenOf(f.Value("tokenizer.ggml.eos_token_id"))
	t.addStops(llamacpp.Ends(f)...)
	return nil
}

// tokenOf returns the token of an id in the metadata of a GGUF file, "" without one.
func (t *Text) tokenOf(value any) string {
	id, ok := value.(uint32)
	if !ok {
		return ""
	}
	token, _ := t.Tokenizer.Token(id)
	return token
}

// settings are the members of config.json, generation_config.json and tokenizer_config.json that
// concern text.
type settings struct {
	EOS      ids       `json:"eos_token_id"`
	BOSToken content   `json:"bos_token"`
	EOSToken content   `json:"eos_token"`
	Template templates `json:"chat_template"`
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
	for _, name := range []string{"generation_config.json", "tokenizer_config.json"} {
		data, err := readFile(c, name, maxSettings)
		if err != nil {
			return err
		}
		if err := all.parse(name, data); err != nil {
			return err
		}
	}
	template, err := readFile(c, "chat_template.jinja", maxSettings)
	if err != nil {
		return err
	}
	t.Template, t.BOS, t.EOS = string(all.Template), string(all.BOSToken), string(all.EOSToken)
	if template != nil {
		t.Template = string(template)
	}
	t.addStops(all.EOS...)
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
