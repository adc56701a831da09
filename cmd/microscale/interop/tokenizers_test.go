package interop

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/tokenizer"
)

var vocabularies = flag.Bool("vocabularies", false, "download llama.cpp's test vocabularies and chat templates (77 MB) and compare "+
	"token ids with Python's tokenizers and chats with Jinja2")

// tokenizerCases names llama.cpp's vocabulary and pre-tokenizer of each case of
// tokenizers_ids.py that a GGUF file can describe.
var tokenizerCases = map[string]struct{ vocabulary, pre string }{
	"gpt-2":  {"gpt-2", "gpt-2"},
	"smollm": {"starcoder", "smollm"},
	"llama3": {"llama-bpe", "llama-bpe"},
	"qwen2":  {"qwen2", "qwen2"}, "qwen3.5": {"qwen35", "qwen35"},
	"tekken": {"llama-bpe", "tekken"}, "o200k": {"llama-bpe", "gpt-4o"},
	"deepseek3": {"deepseek-llm", "deepseek-v3"},
	"llama2":    {"llama-spm", ""},
}

// TestTokenizers compares ids and decoded texts with Python's package tokenizers, on selected
// and random texts, for tokenizer.json files and GGUF metadata.
func TestTokenizers(t *testing.T) {
	if !*vocabularies {
		skipf(t, "-vocabularies is not set")
	}
	const texts = 10_000
	sources := llamaModels(t)
	interpreter := python(t, "tokenizers==0.23.3", "gguf==0.19.0", "numpy==2.4.6")
	dir := t.TempDir()
	script(t, interpreter, "tokenizers_ids.py", sources, dir, fmt.Sprint(texts), "1")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < len(tokenizerCases) {
		t.Fatalf("got %v (%v)", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fromJSON, err := tokenizer.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			compareTokenizer(t, file+"l", fromJSON, texts, true)
			if c, ok := tokenizerCases[name]; ok {
				tok, err := tokenizer.FromGGUF(vocabularyOf(t, filepath.Join(sources, "ggml-vocab-"+c.vocabulary+".gguf"), "", c.pre))
				if err != nil {
					t.Fatal(err)
				}
				compareTokenizer(t, file+"l", tok, texts, false) // the cases add BOS to all
			}
		})
	}
}

// vocabularyOf returns the metadata of a GGUF file with another model and pre-tokenizer, unless they are "".
func vocabularyOf(t *testing.T, file, model, pre string) func(key string) any {
	t.Helper()
	f, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func(key string) any {
		if key == "tokenizer.ggml.pre" && pre != "" {
			return pre
		}
		if key == "tokenizer.ggml.model" && model != "" {
			return model
		}
		return f.Value(key)
	}
}

// compareTokenizer reads the output of Python's tokenizers, one JSON object per line. complete compares
// the tokens before and after texts, too.
func compareTokenizer(t *testing.T, file string, tok *tokenizer.Tokenizer, least int, complete bool) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	texts, size, bad := 0, 0, 0
	var took time.Duration
	for lines.Scan() {
		var want struct {
			Text     *string
			Complete *string // a text that is encoded with the tokens before and after it
			IDs      []uint32
			Decoded  string
		}
		if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if want.Text != nil {
			texts++
			size += len(*want.Text)
			start := time.Now()
			got := tok.Encode(*want.Text, tokenizer.Options{})
			took += time.Since(start)
			if !slices.Equal(got, want.IDs) {
				if bad++; bad < 5 {
					t.Errorf("%q: got %v, want %v", *want.Text, got, want.IDs)
				}
			}
		}
		if want.Complete != nil && complete {
			if got := tok.Encode(*want.Complete, tokenizer.Options{AddSpecial: true}); !slices.Equal(got, want.IDs) {
				t.Errorf("%q, complete: got %v, want %v", *want.Complete, got, want.IDs)
			}
		}
		got, err := tok.Decode(want.IDs, want.Text == nil)
		if err != nil || got != want.Decoded {
			if bad++; bad < 5 {
				t.Errorf("decode %v: got %q, want %q (%v)", want.IDs, got, want.Decoded, err)
			}
		}
	}
	if err := lines.Err(); err != nil || texts < least {
		t.Fatalf("%d texts: %v", texts, err)
	}
	t.Logf("%d texts, %d differences, %.1f MB/s", texts, bad, float64(size)/1e6/took.Seconds())
}

// llamaModels returns a directory with the vocabularies and chat templates of llama.cpp's
// tests.
func llamaModels(t *testing.T) string {
	return environment(t, "llama-cpp-models-0.3.36-2", func(dir string) (string, error) {
		arguments := []string{"-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary=:all:", "--dest", dir,
			"llama-cpp-python==0.3.36"}
		if out, err := command(installLimit(), "python3", arguments...); err != nil {
			return "pip download: " + lastLine(out, err), err
		}
		archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
		if err != nil || len(archives) != 1 {
			return fmt.Sprintf("pip downloaded %v", archives), errors.New("no archive")
		}
		defer os.Remove(archives[0])
		if err := extract(archives[0], dir, "ggml-vocab-*.gguf", "ggml-vocab-*.inp", "ggml-vocab-*.out", "*.jinja",
			"llama-vocab.cpp"); err != nil {
			return "the archive cannot be read: " + err.Error(), err
		}
		return "", nil
	})
}

// extract writes the files of an archive whose names match a pattern to a directory.
func extract(archive, dir string, patterns ...string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Base(header.Name)
		wanted := slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok })
		if !wanted || header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
}
