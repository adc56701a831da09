package interop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tokenizer"
)

// A deviation is a difference between the tokenizers of models and llama.cpp. We have that of the models, as
// TestTokenizersFromGGUF shows.
type deviation struct {
	names []string
	why   string         // of llama.cpp
	in    *regexp.Regexp // texts that may differ
}

var deviations = []deviation{
	{[]string{"qwen2", "qwen35"}, "does not compose characters (NFC), and takes </s>, which is text, for the end of one",
		regexp.MustCompile(`[\p{M}\x{1100}-\x{11ff}]|</s>`)},
	{[]string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, "has no marks among letters", regexp.MustCompile(`\p{M}`)},
	{[]string{"tiny_aya", "cohere2moe"}, "groups digits before letters, too, and does not divide words before upper case",
		regexp.MustCompile(`\p{Nd}[\p{L}\p{M}]|\p{Ll}\p{Lu}`)},
	{[]string{"kimi-k2", "youtu"}, "does not divide words before upper case", regexp.MustCompile(`\p{Ll}\p{Lu}|\p{M}`)},
}

// deviationOf returns the deviation of a name of a vocabulary or pre-tokenizer, nil if there is none.
func deviationOf(name string) *deviation {
	for i, d := range deviations {
		if slices.Contains(d.names, strings.TrimPrefix(name, "ggml-")) {
			return &deviations[i]
		}
	}
	return nil
}

// excuses reports whether a text may have other tokens.
func (d *deviation) excuses(text string) bool { return d != nil && d.in.MatchString(text) }

// unread are names of pre-tokenizers of models that embed text.
var unread = []string{"whitespace"}

// characters are names of pre-tokenizers of vocabularies of characters, which are tested with Gemma 4's.
var characters = []string{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}

// libllamaTexts is the number of random texts for each name.
const libllamaTexts = 1000

type libllamaCase struct {
	File  string  `json:"file"`
	Model string  `json:"model"`
	Pre   *string `json:"pre"`
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
	for _, name := range []string{"aquila", "baichuan", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
		"gpt-neox", "llama-bpe",
		"llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"} {
		cases["ggml-"+name] = libllamaCase{File: filepath.Join(sources, "ggml-vocab-"+name+".gguf")}
	}
	for _, match := range regexp.MustCompile(`tokenizer_pre == "([^"]+)"`).FindAllStringSubmatch(string(read(t, sources, "llama-vocab.cpp")),
		-1) {
		name, vocabulary := match[1], "gpt-2"
		if slices.Contains(characters, name) {
			vocabulary = "gemma-4"
		}
		if !slices.Contains(unread, name) {
			cases[name] = libllamaCase{filepath.Join(sources, "ggml-vocab-"+vocabulary+".gguf"), "gpt2", &name}
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
	script(t, interpreter, "tokenizers_libllama.py", libraries, dir, fmt.Sprint(libllamaTexts), "1")
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
			value := vocabularyOf(t, c.File, c.Model, pre)
			tok, err := tokenizer.FromGGUF(value)
			if err != nil {
				t.Fatal(err)
			}
			special, err := tokenizer.GGUFSpecial(value)
			if err != nil {
				t.Fatal(err)
			}
			compareLibLlama(t, filepath.Join(dir, name+".jsonl"), tok, special.Ends, deviationOf(name))
		})
	}
	if compared < 90 {
		t.Errorf("compared %d of %d", compared, len(cases))
	}
}

// compareLibLlama compares with the lines that tokenizers_libllama.py wrote.
func compareLibLlama(t *testing.T, path string, tok *tokenizer.Tokenizer, ends []uint32, known *deviation) {
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
			if text, ok := tok.ID("</s>"); ok && known.excuses("</s>") { // of HTML, in Qwen's vocabulary
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
			if bad++; !known.excuses(want.Text) {
				t.Errorf("%q: got %v, want %v", want.Text, got, want.IDs)
			}
		}
	}
	if err := lines.Err(); err != nil || texts < libllamaTexts {
		t.Fatalf("%d texts: %v", texts, err)
	}
	if bad == 0 && known != nil {
		t.Errorf("no text differs, although llama.cpp %s", known.why)
	}
	t.Logf("%d texts, %d differences", texts, bad)
}

// TestTokenizersLists compares ids with the lists that llama.cpp's own tests have: texts (.inp) and their ids (.out).
func TestTokenizersLists(t *testing.T) {
	if !*vocabularies {
		skipf(t, "-vocabularies is not set")
	}
	lists, err := filepath.Glob(filepath.Join(llamaModels(t), "*.gguf.inp"))
	if err != nil || len(lists) < 10 {
		t.Fatalf("got %d lists, %v", len(lists), err)
	}
	const separator = "\n__ggml_vocab_test__\n"
	for _, path := range lists {
		path = strings.TrimSuffix(path, ".inp")
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ggml-vocab-"), ".gguf")
		if strings.Contains(name, "bert") { // a model that embeds text
			continue
		}
		t.Run(name, func(t *testing.T) {
			tok, err := tokenizer.FromGGUF(vocabularyOf(t, path, "", ""))
			if err != nil {
				t.Fatal(err)
			}
			texts := strings.Split(string(read(t, "", path+".inp")), separator)
			want := strings.Split(strings.TrimSuffix(string(read(t, "", path+".out")), "\n"), "\n")
			for i, line := range want {
				if got := strings.Trim(fmt.Sprint(tok.Encode(texts[i], tokenizer.Options{Literal: true})), "[]"); got != strings.TrimSpace(line) &&
					!deviationOf(name).excuses(texts[i]) {
					t.Errorf("%q: got %s, want %s", texts[i], got, line)
				}
			}
			if len(want) < 40 {
				t.Errorf("%d texts", len(want))
			}
		})
	}
}
