package assess

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/tokenizer"
)

// maxText is the maximum size of a text in bytes.
const maxText = 1 << 30

// separator stands between the files of a directory, as between the documents of WikiText in the
// evaluations of the GPTQ and AWQ papers.
const separator = "\n\n"

// A document is the text of an evaluation.
type document struct {
	path   string
	text   string
	digest string // SHA-256 of the text, in hexadecimal
}

// readText reads a file, or the files of a directory and those below it in the order of their
// paths, without hidden ones.
func readText(path string) (document, error) {
	info, err := os.Stat(path)
	if err != nil {
		return document{}, fmt.Errorf("%s: %w", path, bounded.Cause(err))
	}
	paths := []string{path}
	if info.IsDir() {
		if paths, err = filesBelow(path); err != nil {
			return document{}, err
		}
	}
	var parts []string
	left := int64(maxText)
	for _, p := range paths {
		data, err := bounded.ReadFile(p, left)
		if _, ok := errors.AsType[bounded.TooLarge](err); ok {
			return document{}, fmt.Errorf("%s: the text is larger than %d MiB: use a part of it", path, maxText>>20)
		}
		if err != nil {
			return document{}, fmt.Errorf("%s: %w", p, bounded.Cause(err))
		}
		left -= int64(len(data))
		parts = append(parts, string(data))
	}
	d := document{path: path, text: strings.Join(parts, separator)}
	if d.text == "" {
		return document{}, fmt.Errorf("%s: there is no text", path)
	}
	sum := sha256.Sum256([]byte(d.text))
	d.digest = hex.EncodeToString(sum[:])
	return d, nil
}

// filesBelow returns the regular files of a directory.
func filesBelow(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case d.Type().IsRegular():
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

// A vocabulary converts text to tokens. Without a tokenizer, tokens are bytes.
type vocabulary struct{ tokenizer *tokenizer.Tokenizer }

// openVocabulary returns the vocabulary of a model.
func openVocabulary(s *stack) (vocabulary, error) {
	if s.Config.HasBytes() {
		return vocabulary{}, nil
	}
	t, err := input.TokenizerOf(s.source)
	if err != nil {
		return vocabulary{}, fmt.Errorf("tokenizer of %s: %w", s.source.Path, err)
	}
	return vocabulary{t}, nil
}

// encode returns the tokens of a text, without those that begin and end it. With literal, special
// tokens in the text are text.
func (v vocabulary) encode(text string, literal bool) ([]int32, error) {
	if v.tokenizer == nil {
		tokens := make([]int32, len(text))
		for i := range len(text) { // not runes
			tokens[i] = int32(text[i])
		}
		return tokens, nil
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("the text is not UTF-8")
	}
	ids := v.tokenizer.Encode(text, tokenizer.Options{Literal: literal})
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		tokens[i] = int32(id)
	}
	return tokens, nil
}

// begin returns the token that begins a text, or -1 if the vocabulary adds none.
func (v vocabulary) begin() int32 {
	if v.tokenizer != nil {
		if id, ok := v.tokenizer.Begin(); ok {
			return int32(id)
		}
	}
	return -1
}

// beginText describes the token that begins a text.
func (v vocabulary) beginText() string {
	if id := v.begin(); id >= 0 {
		return fmt.Sprintf("token %d", id)
	}
	return "no token"
}

// check returns an error unless u has the same tokens as v.
func (v vocabulary) check(u vocabulary) error {
	switch {
	case (v.tokenizer == nil) != (u.tokenizer == nil):
		return errors.New("one has a tokenizer, and the other reads bytes")
	case v.tokenizer == nil:
		return nil
	case v.begin() != u.begin():
		return fmt.Errorf("one begins a text with %s, the other with %s", v.beginText(), u.beginText())
	}
	for id := range uint32(max(v.tokenizer.Size(), u.tokenizer.Size())) {
		a, errA := v.tokenizer.Token(id)
		b, errB := u.tokenizer.Token(id)
		if a != b || (errA == nil) != (errB == nil) {
			return fmt.Errorf("token %d is %q in one and %q in the other", id, a, b)
		}
	}
	return nil
}
