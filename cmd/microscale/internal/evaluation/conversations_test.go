package evaluation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/tokenizer"
)

// TestConversations: a line of a conversation becomes what the chat template writes, with its special tokens, and a line of text the
// tokens of the text, after those of other files.
func TestConversations(t *testing.T) {
	dir := writeModel(t, 1)
	const vocabulary1 = `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
		"pre_tokenizer": {"type": "ByteLevel", "use_regex": true, "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
		"added_tokens": [{"id": 3, "content": "<s>", "special": true}]}`
	for name, text := range map[string]string{"tokenizer.json": vocabulary1,
		"tokenizer_config.json": `{"bos_token": "<s>", "chat_template": "{% for m in messages %}{{ bos_token }}{{ m.content }}{% if m.role ` +
			`== 'user' %}a{% endif %}{% endfor %}"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	tok, err := tokenizer.Parse([]byte(vocabulary1))
	if err != nil {
		t.Fatal(err)
	}
	texts := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(texts, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.txt", "ab<s>")
	encode := func(limit int64) ([]int32, error) {
		files, err := findText(texts)
		if err != nil {
			return nil, err
		}
		d, err := files.read(limit)
		if err != nil {
			return nil, err
		}
		return vocabulary{tok}.encodeAll(t.Context(), d, &stack{source: source}, true)
	}
	lines := `{"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "ab"}]}` + "\n\n" + `{"text": "<s>a"}` + "\n" +
		`{"messages": [{"role": "user", "content": "a"}]}` + "\n"
	write("a.jsonl", lines)
	literal, err := vocabulary{tok}.encode("<s>", true) // not one token
	if err != nil || slices.Contains(literal, 3) {
		t.Fatalf("got %v (%v)", literal, err)
	}
	talk, last := []int32{3, 1, 0, 3, 2}, []int32{3, 0, 0}
	want := slices.Concat([]int32{2}, literal, talk, literal, []int32{0}, last)
	if got, err := encode(maxText); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v (%v)", got, want, err)
	}
	if got, err := encode(int64(len(lines)) - 3); err != nil || !slices.Equal(got, slices.Concat(talk, literal, []int32{0})) {
		t.Errorf("of a part: got %v (%v)", got, err)
	}
	write("a.jsonl", "\xef\xbb\xbf"+lines)
	if got, err := encode(maxText); err != nil || !slices.Equal(got, want) {
		t.Errorf("after a byte order mark: got %v, want %v (%v)", got, want, err)
	}
	for line, want := range map[string]string{
		"{": "line 1: it is not a JSON object", "\n{}": "line 2: it has neither", `{"messages": []}`: "neither", "[1]": "not a JSON object",
		`{"messages": [{"role": "user"}]}`:               "a message has no content, or one that is not a text",
		`{"messages": [{"role": 1, "content": ""}]}`:     "a message has no role, or one that is not a text",
		`{"messages": [{"role": "u", "content": null}]}`: "",
	} {
		write("a.jsonl", line)
		if _, err := encode(maxText); want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: got %v", line, err)
		}
	}
}
