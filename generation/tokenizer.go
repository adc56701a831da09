package generation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/tokenizer"
)

// tokenizerName is the file of a directory that defines its tokenizer.
const tokenizerName = "tokenizer.json"

// maxTokenizer limits the bytes of tokenizer.json: the largest ones have about 35 MB.
const maxTokenizer = 256 << 20

// TokenizerOf opens the tokenizer of an open checkpoint, which may be on the hub.
func TokenizerOf(c *hf.Checkpoint) (*tokenizer.Tokenizer, error) {
	for _, other := range c.Others() {
		if other.Name == tokenizerName {
			return parse(other.Path)
		}
	}
	if c.GGUF != nil {
		return ofGGUF(c.GGUF)
	}
	return nil, fmt.Errorf("%s is missing: copy it from the original model", tokenizerName)
}

// Tokenizer opens the tokenizer of a model: a directory with tokenizer.json, such a file, or a
// GGUF file.
func Tokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, limits.Cause(err))
	case info.IsDir():
		path = filepath.Join(path, tokenizerName)
	case gguf.Named(path):
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return ofGGUF(f)
	}
	t, err := parse(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: name a model with a tokenizer, or a GGUF file", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// ofGGUF returns the tokenizer of a GGUF file.
func ofGGUF(f *gguf.File) (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.FromGGUF(f.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return t, nil
}

// parse reads a tokenizer.json.
func parse(path string) (*tokenizer.Tokenizer, error) {
	data, err := limits.ReadFile(path, maxTokenizer)
	if err != nil {
		return nil, limits.Cause(err)
	}
	return tokenizer.Parse(data)
}
