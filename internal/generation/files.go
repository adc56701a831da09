package generation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/internal/gguf"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/tokenizer"
)

// maxSettings limits the sizes of files of settings, and of templates, which have up to 0.1 MB.
const maxSettings = 16 << 20

// ReadText reads the text of a model: of a directory with tokenizer.json, or of a GGUF file. bytes
// says that tokens of the model are bytes, and that there are no such files.
func ReadText(path string, bytes bool) (Text, error) {
	var t Text
	var err error
	switch {
	case bytes:
		t = Text{Tokenizer: tokenizer.Bytes()}
	default:
		t.Tokenizer, err = input.Tokenizer(path)
		if errors.Is(err, fs.ErrNotExist) {
			return t, fmt.Errorf("%s: tokenizer.json is missing: copy it from the original model", path)
		}
		if err != nil {
			return t, err
		}
		if strings.HasSuffix(path, llamacpp.Suffix) {
			err = t.readGGUF(path)
		} else {
			err = t.readDirectory(path)
		}
	}
	if err != nil {
		return Text{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readGGUF reads the metadata of a GGUF file.
func (t *Text) readGGUF(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t.Template, _ = f.Value("tokenizer.chat_template").(string)
	t.BOS = t.tokenOf(f.Value("tokenizer.ggml.bos_token_id"))
	t.EOS = t.tokenOf(f.Value("tokenizer.ggml.eos_token_id"))
	var ends []int32
	for _, key := range []string{"eot_token_id", "eom_token_id"} {
		if id, ok := f.Value("tokenizer.ggml." + key).(uint32); ok {
			ends = append(ends, int32(id))
		}
	}
	t.addStops(ends...)
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

// readDirectory reads the files of a Hugging Face directory.
func (t *Text) readDirectory(dir string) error {
	var all settings // later files add to the ids of earlier ones
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json"} {
		data, err := readFile(dir, name)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := json.Unmarshal(configjson.Standard(data), &all); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	template, err := readFile(dir, "chat_template.jinja")
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

// readFile reads a file of a directory: nil if it does not exist.
func readFile(dir, name string) ([]byte, error) {
	data, err := bounded.ReadFile(filepath.Join(dir, name), maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, bounded.Cause(err))
	}
	return data, nil
}

// ids is an id or a list of ids. Those of several files add up.
type ids []int32

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
