package interop

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tokenizer"
)

// approximated are the names of pre-tokenizers whose models have another pattern than llama.cpp, which we
// have, too; TestTokenizersFromGGUF compares them with Python's tokenizers. The values say what
// differs.
var approximated = map[string]string{
	"tekken": "upper case of A to Z only", "gpt-4o": "upper case of A to Z only", "llama4": "as gpt-4o", "kanana2": "as gpt-4o", "talkie": "as gpt-4o",
	"minimax-m2": "as gpt-4o", "granite-embed-multi-97m": "as gpt-4o", "tiny_aya": "digits before letters", "cohere2moe": "as tiny_aya",
	"kimi-k2": "upper and lower case", "afmoe": "spaces before digits", "qwen2": "NFC; </s> is text", "qwen35": "NFC; </s> is text", "youtu": "ASCII classes",
	"poro-chat": "bytes that the vocabulary lacks divide words", "bloom": "as poro-chat", "gpt3-finnish": "as poro-chat",
}

// unread are names of pre-tokenizers of models that embed text.
var unread = []string{"whitespace"}

type libllamaCase struct {
	File string  `json:"file"`
	Pre  *string `json:"pre"`
}

// TestTokenizersLibLlama compares ids and ends of answers with llama.cpp's library: for each of its test vocabularies, and for
// a vocabulary with words of every kind under each name of a pre-tokenizer that llama.cpp accepts.
func TestTokenizersLibLlama(t *testing.T) {
	if !*vocabularies {
		skipf(t, "-vocabularies is not set")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(t, "%s is not started on %s/%s", llamaLibraries, runtime.GOOS, runtime.GOARCH)
	}
	sources, dir := llamaModels(t), t.TempDir()
	libraries := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")
	interpreter := python(t, "tokenizers==0.23.3", "gguf==0.19.0", "numpy==2.4.6")
	cases := map[string]libllamaCase{}
	for _, name := range []string{"aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "gpt-neox", "llama-bpe",
		"llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"} {
		cases["ggml-"+name] = libllamaCase{File: filepath.Join(sources, "ggml-vocab-"+name+".gguf")}
	}
	for _, match := range regexp.MustCompile(`tokenizer_pre == "([^"]+)"`).FindAllStringSubmatch(string(read(t, sources, "llama-vocab.cpp")), -1) {
		if name := match[1]; !slices.Contains(unread, name) {
			cases[name] = libllamaCase{filepath.Join(sources, "ggml-vocab-gpt-2.gguf"), &name}
		}
	}
	if len(cases) < 90 {
		t.Fatalf("got %d cases", len(cases))
	}
	input, err := json.Marshal(cases)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cases.json"), input, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	script(t, interpreter, "tokenizers_libllama.py", libraries, dir, "60", "1")
	compared := 0
	for name, c := range cases {
		if _, err := os.Stat(filepath.Join(dir, name+".jsonl")); err != nil {
			t.Logf("the library does not load %s", name)
			continue
		}
		compared++
		t.Run(name, func(t *testing.T) {
			pre := ""
			if c.Pre != nil {
				pre = *c.Pre
			}
			value := vocabularyOf(t, c.File, pre)
			tok, err := tokenizer.FromGGUF(value)
			if err != nil {
				t.Fatal(err)
			}
			special, err := tokenizer.GGUFSpecial(value)
			if err != nil {
				t.Fatal(err)
			}
			compareLibLlama(t, filepath.Join(dir, name+".jsonl"), tok, special.Ends, approximated[strings.TrimPrefix(name, "ggml-")] != "")
		})
	}
	if compared < 90 {
		t.Errorf("compared %d of %d", compared, len(cases))
	}
}

// compareLibLlama compares with the lines that tokenizers_libllama.py wrote.
func compareLibLlama(t *testing.T, path string, tok *tokenizer.Tokenizer, ends []uint32, approximate bool) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	texts, bad := 0, 0
	for lines.Scan() {
		var want struct {
			Text string
			IDs  []uint32
			Ends []uint32
		}
		if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if want.Ends != nil {
			if text, ok := tok.ID("</s>"); ok && approximate { // of HTML, in Qwen's vocabulary
				want.Ends = slices.DeleteFunc(want.Ends, func(id uint32) bool { return id == text })
			}
			if !slices.Equal(ends, want.Ends) {
				t.Errorf("ends of answers: got %v, want %v", ends, want.Ends)
			}
			continue
		}
		if texts++; strings.Contains(want.Text, "ſ") { // is a letter s to (?i:'s) of tokenizer.json, not to llama.cpp
			continue
		}
		if got := tok.Encode(want.Text, tokenizer.Options{}); !slices.Equal(got, want.IDs) {
			if bad++; bad < 4 && !approximate {
				t.Errorf("%q: got %v, want %v", want.Text, got, want.IDs)
			}
		}
	}
	if err := lines.Err(); err != nil || texts < 60 {
		t.Fatalf("%d texts: %v", texts, err)
	}
	t.Logf("%d texts, %d differences", texts, bad)
}
