package generation

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
)

const smallTokenizer = `{"model": {"type": "BPE", "vocab": {"H": 0, "i": 1}, "merges": []}, "decoder": {"type": "ByteLevel"},
	"pre_tokenizer": {"type": "ByteLevel"},
	"added_tokens": [{"id": 2, "content": "<s>", "special": true}, {"id": 3, "content": "</s>", "special": true}, {"id": 4,
	"content": "<|im_end|>", "special": true}]}`

// TestReadText reads what Hugging Face directories say in the forms that they have.
func TestReadText(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Text
	}{
		"least": {nil, Text{Stop: []int32{3, 4}}},
		"strings": {map[string]string{
			"tokenizer_config.json": `{"chat_template": "T", "bos_token": "<s>", "eos_token": "</s>"}`,
			"config.json":           `{"eos_token_id": 1, "rope": Infinity}`,
		}, Text{Template: "T", BOS: "<s>", EOS: "</s>", Stop: []int32{1, 3}}},
		"objects": {map[string]string{
			"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "U"}, {"name": "default", "template": "D"}], ` +
				`"bos_token": {"content": "<s>"}, "eos_token": null}`,
			"config.json":            `{"eos_token_id": null}`,
			"generation_config.json": `{"eos_token_id": [0, 3]}`,
		}, Text{Template: "D", BOS: "<s>", Stop: []int32{0, 3}}},
		"file": {map[string]string{
			"tokenizer_config.json": `{"chat_template": "T"}`,
			"chat_template.jinja":   "J",
		}, Text{Template: "J", Stop: []int32{3, 4}}},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"tokenizer.json": smallTokenizer})
		writeFiles(t, dir, c.files)
		got, err := read(t, dir, false)
		if err != nil || got.Template != c.want.Template || got.BOS != c.want.BOS || got.EOS != c.want.EOS || !slices.Equal(got.Stop,
			c.want.Stop) {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, c.want)
		}
	}
	if got := readNotes(t, nil); !strings.Contains(got, "declares no eos_token_id. Answers end at <|im_end|>, </s>, a guess") {
		t.Errorf("nothing declared: got notes %q", got)
	}
	if got := readNotes(t, map[string]string{"config.json": `{"eos_token_id": 3}`}); got != "" {
		t.Errorf("declared: got notes %q", got)
	}
	if got, err := read(t, t.TempDir(), true); err != nil || got.Tokenizer.Size() != 256 || got.Template != "" {
		t.Errorf("bytes: got %+v, %v", got, err)
	}
}

// readNotes returns the notes about a directory with files.
func readNotes(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"tokenizer.json": smallTokenizer})
	writeFiles(t, dir, files)
	got, err := read(t, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got.Notes, "\n")
}

// TestChannels checks that the end of a channel of gpt-oss ends no answer, neither if the ends are declared nor if they are guessed.
func TestChannels(t *testing.T) {
	const channels = `{"model": {"type": "BPE", "vocab": {"H": 0, "i": 1}, "merges": []}, "decoder": {"type": "ByteLevel"},
		"pre_tokenizer": {"type": "ByteLevel"},
		"added_tokens": [{"id": 2, "content": "<|end|>", "special": true}, {"id": 3, "content": "<|return|>", "special": true}, {"id": 4,
		"content": "<|call|>", "special": true}]}`
	for config, want := range map[string][]int32{`{}`: {3, 4}, `{"eos_token_id": 3}`: {3}, `{"eos_token_id": 2}`: {2}} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"tokenizer.json": channels, "config.json": config})
		if got, err := read(t, dir, false); err != nil || !slices.Equal(got.Stop, want) {
			t.Errorf("%s: got %v (%v), want %v", config, got.Stop, err, want)
		}
	}
}

// TestSpecial checks the tokens that templates have by name, and what the files recommend for sampling.
func TestSpecial(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"tokenizer.json": smallTokenizer, "special_tokens_map.json": `{"pad_token": "<s>", "unk_token": "old"}`,
		"tokenizer_config.json": `{"unk_token": {"content": "<unk>"}, "sep_token": "|", "mask_token": null,
			"extra_special_tokens": {"image_token": "<image>"},
			"additional_special_tokens": ["x"]}`,
		"generation_config.json": `{"do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}`,
	})
	got, err := read(t, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"unk_token": "<unk>", "sep_token": "|", "pad_token": "<s>", "image_token": "<image>"}
	if !maps.Equal(got.Special, want) {
		t.Errorf("got %v, want %v", got.Special, want)
	}
	if list := got.Sampling.String(); list != "do_sample true, temperature 0.6, repetition_penalty 1.1, top_k 20" {
		t.Errorf("got %q", list)
	}
}

// TestReadGGUF reads the text of a GGUF file: named tokens, ends of answers, and a note about one that is typed as text.
func TestReadGGUF(t *testing.T) {
	for template, want := range map[string]Text{
		"{{ m }}": {BOS: "<s>", EOS: "</s>", Special: map[string]string{"unk_token": "<unk>", "pad_token": "<pad>"}, Stop: []int32{2}},
		"{{ m }}<|im_end|>": {BOS: "<s>", EOS: "</s>", Special: map[string]string{"unk_token": "<unk>", "pad_token": "<pad>"},
			Stop: []int32{2, 4}, Notes: []string{"The file types <|im_end|> as text. As in llama.cpp, it ends answers."}},
	} {
		l, err := gguf.NewLayout(nil, []gguf.Pair{
			{Key: "tokenizer.ggml.model", Value: "llama"}, {Key: "tokenizer.ggml.tokens", Value: []string{"<unk>", "<s>", "</s>", "<pad>",
				"<|im_end|>", "a"}},
			{Key: "tokenizer.ggml.token_type", Value: []int32{2, 3, 3, 3, 1, 1}}, {Key: "tokenizer.ggml.padding_token_id", Value: uint32(3)},
			{Key: "tokenizer.chat_template", Value: template},
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, l.HeaderBytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		var got Text
		if err := got.readGGUF(file); err != nil {
			t.Fatal(err)
		}
		if got.Template != template || got.BOS != want.BOS || got.EOS != want.EOS || !maps.Equal(got.Special, want.Special) ||
			!slices.Equal(got.Stop, want.Stop) || !slices.Equal(got.Notes, want.Notes) {
			t.Errorf("%s: got %+v, want %+v", template, got, want)
		}
	}
}

func TestReadTextErrors(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"tokenizer.json", "{", "tokenizer"},
		{"config.json", `{"eos_token_id": "x"}`, "config.json: eos_token_id: want an integer"},
		{"tokenizer_config.json", `{"chat_template": 5}`, "chat_template: want a string"},
		{"generation_config.json", `[`, "generation_config.json: "},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"tokenizer.json": smallTokenizer})
		writeFiles(t, dir, map[string]string{c.file: c.text})
		if _, err := read(t, dir, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v", c.file, c.text, err)
		}
	}
	if _, err := read(t, t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("empty directory: got %v", err)
	}
}

// read reads the text of a directory, to which it adds weights.
func read(t *testing.T, dir string, bytes bool) (Text, error) {
	t.Helper()
	return readText(open(t, dir), bytes)
}

// open adds weights to a directory and opens it.
func open(t *testing.T, dir string) *hf.Checkpoint {
	t.Helper()
	const weights = `{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} `
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(weights)))
	writeFiles(t, dir, map[string]string{"model.safetensors": string(file) + weights + "\x00\x00\x00\x00"})
	c, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
