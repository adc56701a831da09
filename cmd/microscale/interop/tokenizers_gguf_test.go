package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/tokenizer"
)

// TestTokenizersFromGGUF compares the tokenizer.json of GGUF files, read by Python's package tokenizers,
// with our tokenizer from the GGUF file and from that tokenizer.json: SmolLM2's and, with -vocabularies,
// those of llama.cpp's tests.
func TestTokenizersFromGGUF(t *testing.T) {
	cases := map[string]func(key string) any{"smollm2": vocabularyOf(t, smollm2(t), "", "")}
	count := 300
	if *vocabularies {
		count = 10_000
		sources := llamaModels(t)
		for name, c := range tokenizerCases {
			cases[name] = vocabularyOf(t, filepath.Join(sources, "ggml-vocab-"+c.vocabulary+".gguf"), "", c.pre)
		}
		for _, name := range []string{"phi-3", "llama-spm", "llama-bpe"} { // as they are, with their tokens before and after a text
			cases["ggml-"+name] = vocabularyOf(t, filepath.Join(sources, "ggml-vocab-"+name+".gguf"), "", "")
		}
	}
	interpreter, dir := python(t, "tokenizers==0.23.3", "gguf==0.19.0", "numpy==2.4.6"), t.TempDir()
	for name, value := range cases {
		data, err := tokenizer.GGUFToJSON(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), data, 0o600)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	script(t, interpreter, "tokenizers_gguf.py", dir, fmt.Sprint(count), "1")
	for name, value := range cases {
		t.Run(name, func(t *testing.T) {
			fromGGUF, err := tokenizer.FromGGUF(value)
			if err != nil {
				t.Fatal(err)
			}
			fromJSON, err := tokenizer.Parse(read(t, dir, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, tok := range []*tokenizer.Tokenizer{fromGGUF, fromJSON} {
				compareTokenizer(t, filepath.Join(dir, name+".jsonl"), tok, count, true)
			}
		})
	}
}
