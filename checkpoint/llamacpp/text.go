package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/tokenizer"
)

// A Text is what the metadata of a GGUF file says about text, as files of a Hugging Face directory.
type Text struct {
	Files   []checkpoint.File
	Missing error // why there is no tokenizer; nil if there is one
}

// ReadText returns the text of a GGUF file: its tokenizer with the chat template, and the tokens that
// end an answer. Metadata that are no tokenizer are not an error, but those without a parameter that
// config.json needs are.
func ReadText(f *gguf.File) (t Text, err error) {
	if err := checkParameters(f); err != nil {
		return t, fmt.Errorf("%s: %w", f.Name(), err)
	}
	t.Files = []checkpoint.File{jsonFile("generation_config.json", generationConfig(f))}
	var vocabulary []byte
	if vocabulary, t.Missing = vocabularyOf(f); t.Missing == nil {
		t.Files = append(t.Files, checkpoint.File{Name: "tokenizer.json", Data: vocabulary},
			jsonFile("tokenizer_config.json", tokenizerConfig(f)))
	}
	return t, nil
}

// checkParameters returns an error if config.json lacks a parameter, or has no key for one of the file.
func checkParameters(f *gguf.File) error {
	text, err := configuration(f)
	if err != nil {
		return err
	}
	var c map[string]any
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	_, a := architectureOf(f)
	if unknown := a.unknown(f); len(unknown) > 0 {
		return fmt.Errorf("the metadata have %.80q, which has no key in config.json: it may change what the model computes", unknown[0].Key)
	}
	for _, p := range parameters {
		if p.config != "" && c[p.config] == nil {
			return fmt.Errorf("the metadata have no %v.%s, which is %s in config.json: fetch it again", f.Value("general.architecture"), p.metadata,
				p.config)
		}
	}
	return nil
}

// jsonFile returns a file with members of a JSON object.
func jsonFile(name string, members map[string]any) checkpoint.File {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(members); err != nil {
		panic(err) // strings and numbers always encode
	}
	return checkpoint.File{Name: name, Data: b.Bytes()}
}

// vocabularyOf returns the tokenizer.json of a file.
func vocabularyOf(f *gguf.File) ([]byte, error) {
	if kind := f.Value("tokenizer.ggml.model"); kind == nil || kind == "none" {
		return nil, errors.New("the GGUF file has none")
	}
	tokens, _ := f.Value("tokenizer.ggml.tokens").([]string)
	if t, ok := f.Lookup("token_embd.weight"); ok && len(t.Shape) == 2 && int64(len(tokens)) > t.Shape[0] {
		return nil, fmt.Errorf("the GGUF file has %d tokens, and embeddings of %d", len(tokens), t.Shape[0])
	}
	return tokenizer.GGUFToJSON(f.Value)
}

// tokenizerConfig returns the members of tokenizer_config.json.
func tokenizerConfig(f *gguf.File) map[string]any {
	c := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	tokens, _ := f.Value("tokenizer.ggml.tokens").([]string)
	special, _ := tokenizer.GGUFSpecial(f.Value) // vocabularyOf has checked it
	for key, name := range SpecialTokens {
		if id, ok := special.IDs[name]; ok {
			c[key] = tokens[id]
		}
	}
	for _, key := range []string{"add_bos_token", "add_eos_token"} {
		if add, ok := f.Value("tokenizer.ggml." + key).(bool); ok {
			c[key] = add
		}
	}
	if template, ok := f.Value("tokenizer.chat_template").(string); ok {
		c["chat_template"] = template
	}
	name, _ := f.Value("general.architecture").(string)
	if n := f.Count(name + ".context_length"); n > 0 {
		c["model_max_length"] = n
	}
	return c
}

// SpecialTokens maps members of tokenizer_config.json to names in the metadata (tokenizer.Special).
var SpecialTokens = map[string]string{
	"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding", "mask_token": "mask",
	"sep_token": "seperator", //nolint:misspell // GGUF spells it so
}

// generationConfig returns the members of generation_config.json.
func generationConfig(f *gguf.File) map[string]any {
	c := map[string]any{}
	for key, metadata := range tokenKeys {
		if id := f.Value("tokenizer.ggml." + metadata); id != nil {
			c[key] = id
		}
	}
	if special, err := tokenizer.GGUFSpecial(f.Value); err == nil && len(special.Ends) > 1 {
		c["eos_token_id"] = special.Ends
	}
	return c
}
