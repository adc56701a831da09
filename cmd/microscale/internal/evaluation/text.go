package evaluation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/limits"
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
	text   string // until it was encoded, as the following
	lines  []passage
	bytes  int    // of the text
	digest string // SHA-256 of the text, in hexadecimal
}

// textFiles are the files of a text.
type textFiles struct {
	path  string // a file or a directory
	names []string
	bytes int64 // of the text, unless the files change
}

// CheckText returns an error unless path is a file with text, or a directory of files.
func CheckText(path string) error {
	_, err := findText(path)
	return err
}

// findText finds a file, or the files of a directory and those below it in the order of their paths, without hidden
// ones.
func findText(path string) (t textFiles, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, limits.Cause(err))
	}
	t = textFiles{path: path, names: []string{path}}
	if info.IsDir() {
		if t.names, err = filesBelow(path); err != nil {
			return t, err
		}
	}
	for _, name := range t.names {
		info, err := os.Stat(name)
		if err != nil {
			return t, fmt.Errorf("%s: %w", name, limits.Cause(err))
		}
		if !info.Mode().IsRegular() {
			return t, fmt.Errorf("%s: %w: write the text to a file, which is read more than once", name, limits.ErrNotRegular)
		}
		t.bytes += info.Size()
	}
	t.bytes += int64(len(separator) * max(0, len(t.names)-1))
	return t, t.checkSize(t.bytes)
}

// checkSize returns an error for a text of a number of bytes that is empty or too large.
func (t textFiles) checkSize(bytes int64) error {
	switch {
	case bytes > maxText:
		return fmt.Errorf("%s: the text is larger than %d MiB: use a part of it", t.path, maxText>>20)
	case bytes == 0:
		return fmt.Errorf("%s: there is no text: name a file or a directory that has some", t.path)
	}
	return nil
}

// readWindows returns the windows of the text, before any work. It reads no layer of the model.
func (e Evaluation) readWindows(ctx context.Context) (_ []windows.Window, err error) {
	text, err := findText(e.Text)
	if err != nil {
		return nil, err
	}
	model, err := openStack(ctx, e.Model, decoder.LoadOptions{Inference: true}, e.Threads, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	vocabulary, err := openVocabulary(model)
	if err != nil {
		return nil, err
	}
	r := &Evaluated{Evaluation: e}
	if r.document, err = text.read(maxText + 1); err != nil {
		return nil, err
	}
	var run windows.Run
	err = r.cut(ctx, &run, model, vocabulary)
	return run.Windows, err
}

// read reads the text, or the beginning of it: files up to a limit in bytes.
func (t textFiles) read(limit int64) (document, error) {
	var b strings.Builder
	b.Grow(int(min(t.bytes, limit, maxText)))
	sum, read, texts := sha256.New(), int64(0), 0
	d := document{path: t.path}
	for _, name := range t.names {
		if read >= limit {
			break
		}
		var lines bytes.Buffer
		to := io.MultiWriter(&lines, sum)
		if !hasConversations(name) {
			if to = io.MultiWriter(&b, sum); texts > 0 {
				_, _ = io.WriteString(to, separator) // never fails
				read += int64(len(separator))
			}
			texts++
		}
		n, err := copyFile(to, name, limit-read)
		if err != nil {
			return document{}, fmt.Errorf("%s: %w", name, limits.Cause(err))
		}
		read += n
		more, err := readLines(lines.Bytes(), read >= limit)
		if err != nil {
			return document{}, fmt.Errorf("%s: %w", name, err)
		}
		d.lines = append(d.lines, more...)
	}
	if err := t.checkSize(read); err != nil { // of files that changed
		return document{}, err
	}
	d.text, d.bytes, d.digest = b.String(), int(read), hex.EncodeToString(sum.Sum(nil))
	return d, nil
}

// copyFile writes the first bytes of a file, up to a limit, and returns their number.
func copyFile(w io.Writer, name string, limit int64) (n int64, err error) {
	f, _, err := limits.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(w, io.LimitReader(f, limit))
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
	t, err := generation.TokenizerOf(s.source)
	if err != nil {
		return vocabulary{}, fmt.Errorf("tokenizer of %s: %w", s.source.Path, err)
	}
	return vocabulary{t}, nil
}

// encode returns the tokens of a text, without those that begin and end it. With literal, special
// tokens in the text are text.
func (v vocabulary) encode(text string, literal bool) ([]int32, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("the text is binary, or not UTF-8: name a file of plain text")
	}
	if v.tokenizer == nil {
		tokens := make([]int32, len(text), len(text)+1) // one more for the token that begins a text
		for i := range len(text) {                      // not runes
			tokens[i] = int32(text[i])
		}
		return tokens, nil
	}
	ids := v.tokenizer.Encode(text, tokenizer.Options{Literal: literal})
	tokens := make([]int32, len(ids), len(ids)+1)
	for i, id := range ids {
		tokens[i] = int32(id)
	}
	return tokens, nil
}

// decode returns the text of tokens.
func (v vocabulary) decode(tokens []int32) (string, error) {
	if v.tokenizer == nil {
		text := make([]byte, len(tokens))
		for i, t := range tokens {
			text[i] = byte(t)
		}
		return string(text), nil
	}
	ids := make([]uint32, len(tokens))
	for i, t := range tokens {
		ids[i] = uint32(t)
	}
	return v.tokenizer.Decode(ids, false)
}

// encodeAll returns the tokens of a document of a model: of its text, and then of each line, without anything between them.
func (v vocabulary) encodeAll(ctx context.Context, d document, model *stack, literal bool) ([]int32, error) {
	tokens, err := v.encode(d.text, literal)
	if err != nil {
		return nil, err
	}
	conversations, err := v.render(ctx, d.lines, model)
	for _, p := range d.lines {
		if err != nil {
			return nil, err
		}
		var more []int32
		if p.conversation != nil {
			more, err = v.encode(conversations[0], false)
			conversations = conversations[1:]
		} else {
			more, err = v.encode(p.text, literal)
		}
		tokens = append(tokens, more...)
	}
	return tokens, err
}

// render returns the texts of the conversations among passages.
func (v vocabulary) render(ctx context.Context, passages []passage, model *stack) ([]string, error) {
	var conversations [][]chat.Message
	for _, p := range passages {
		if p.conversation != nil {
			conversations = append(conversations, p.conversation)
		}
	}
	if conversations == nil {
		return nil, nil
	}
	if v.tokenizer == nil {
		return nil, errors.New("the tokens of the model are bytes: conversations need a model with a chat template")
	}
	text, err := generation.TextOf(model.source)
	if err != nil {
		return nil, err
	}
	return chat.Texts(ctx, text, conversations)
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
