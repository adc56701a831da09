package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/microscale-go/microscale/internal/bounded"
)

// Names of corpora that are no paths.
const (
	GoRoot    = "goroot:"    // the source of Go's standard library
	Synthetic = "synthetic:" // text of our own generator, always the same
)

// A Corpus is text, as bytes, in two parts of which the second is never trained
// on. It is read only.
type Corpus struct {
	Sources    []string // as they were given
	Digest     string   // SHA-256 of the text and of where it was cut
	Train      []byte
	Validation []byte
}

const (
	splitEvery = 16
	minBlock   = 512
)

const (
	maxFile   = 128 << 10 // of a directory: larger ones are generated tables
	maxCorpus = 256 << 20
	maxGo     = 32 << 20
)

// DefaultCorpus returns GoRoot where Go is installed with its source, and
// Synthetic elsewhere.
func DefaultCorpus() string {
	if _, err := goSource(); err != nil {
		return Synthetic
	}
	return GoRoot
}

// OpenCorpus reads text: GoRoot, Synthetic, files (any bytes), and directories,
// of which it takes the files of text in the order of their paths: no hidden
// ones, none beyond 128 KiB, and no links. Several sources are one text.
func OpenCorpus(sources ...string) (*Corpus, error) {
	if len(sources) == 0 {
		sources = []string{DefaultCorpus()}
	}
	var text []byte
	for _, s := range sources {
		part, err := readSource(s, maxCorpus-len(text))
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	return NewCorpus(text, sources...), nil
}

// NewCorpus cuts a text into 256 blocks, or fewer of 512 bytes, of which every
// sixteenth is for validation.
func NewCorpus(text []byte, sources ...string) *Corpus {
	block := max(len(text)/256, minBlock)
	c := &Corpus{Sources: sources}
	sum := sha256.New()
	for i := 0; i*block < len(text); i++ {
		part := text[i*block : min((i+1)*block, len(text))]
		if i%splitEvery == splitEvery-1 {
			c.Validation = append(c.Validation, part...)
		} else {
			c.Train = append(c.Train, part...)
		}
	}
	for _, part := range [][]byte{c.Train, c.Validation} {
		fmt.Fprintf(sum, "%d ", len(part))
		sum.Write(part)
	}
	c.Digest = hex.EncodeToString(sum.Sum(nil))
	return c
}

// Name returns the sources in a line.
func (c *Corpus) Name() string { return strings.Join(c.Sources, " ") }

// Bytes returns the length of the text.
func (c *Corpus) Bytes() int { return len(c.Train) + len(c.Validation) }

// Admit reports what makes a corpus too small for windows of sequence bytes.
func (c *Corpus) Admit(sequence int) error {
	if window := sequence + 1; len(c.Train) >= window && len(c.Validation) >= window {
		return nil
	}
	return fmt.Errorf("%s: a text of %d bytes is too short for sequences of %d: at least %d are needed, of which a sixteenth is for validation; name more text, or shorter sequences",
		c.Name(), c.Bytes(), sequence, leastBytes(sequence))
}

// leastBytes is a length of text that is enough for windows of sequence bytes:
// its validation blocks hold one.
func leastBytes(sequence int) int { return splitEvery * minBlock * (sequence/minBlock + 1) }

// readSource reads one source, of at most limit bytes.
func readSource(source string, limit int) ([]byte, error) {
	switch source {
	case "":
		return nil, fmt.Errorf("the name of the corpus is empty: name %s, %s, a file or a directory", GoRoot, Synthetic)
	case Synthetic:
		return synthesize(syntheticSize), nil
	case GoRoot:
		root, err := goSource()
		if err != nil {
			return nil, err
		}
		return readTree(root, GoRoot, min(limit, maxGo), goFile)
	}
	info, err := os.Stat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file or directory: name text to train on, or %s or %s", source, GoRoot, Synthetic)
	case err != nil:
		return nil, unreadable(source, err)
	case info.IsDir():
		return readTree(source, source, limit, func(string, fs.DirEntry) bool { return true })
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: neither a file nor a directory: name text to train on", source)
	}
	text, err := bounded.ReadFile(source, int64(limit))
	if _, ok := errors.AsType[bounded.TooLarge](err); ok {
		return nil, tooLarge(source)
	}
	if err != nil {
		return nil, unreadable(source, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: the file is empty: name text to train on", source)
	}
	return text, nil
}

func unreadable(path string, err error) error {
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		path, err = cause.Path, cause.Err
	}
	return fmt.Errorf("%s: cannot be read: %w: make it readable, or name another text", path, err)
}

func tooLarge(source string) error {
	return fmt.Errorf("%s: the text is larger than %d MiB: name a part of it", source, maxCorpus>>20)
}

// readTree reads the files of text of a directory that wanted admits. GoRoot
// ends where it has limit bytes; another source is refused.
func readTree(root, name string, limit int, wanted func(path string, d fs.DirEntry) bool) ([]byte, error) {
	var text []byte
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return unreadable(path, err)
		}
		if path != root && (strings.HasPrefix(d.Name(), ".") || !wanted(path, d)) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return unreadable(path, err)
		}
		if info.Size() > maxFile {
			return nil
		}
		part, err := bounded.ReadFile(path, maxFile)
		if _, grown := errors.AsType[bounded.TooLarge](err); grown {
			return nil
		}
		if err != nil {
			return unreadable(path, err)
		}
		if bytes.IndexByte(part, 0) >= 0 {
			return nil // no text
		}
		if len(text)+len(part) > limit {
			if name == GoRoot {
				return fs.SkipAll
			}
			return tooLarge(name)
		}
		text = append(text, part...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: no file of text of at most %d KiB is in the directory: name another", name, maxFile>>10)
	}
	return text, nil
}

// goFile admits the library's own source: no tests, commands, or others' modules.
func goFile(_ string, d fs.DirEntry) bool {
	if d.IsDir() {
		return d.Name() != "cmd" && d.Name() != "vendor" && d.Name() != "testdata"
	}
	return strings.HasSuffix(d.Name(), ".go") && !strings.HasSuffix(d.Name(), "_test.go")
}

// goSource returns the directory of the standard library's source, which it asks
// the go command for.
func goSource() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local") // the one that is there: nothing is fetched
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: the go command cannot be run: install Go, or train on %s or your own text", GoRoot, Synthetic)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	if info, err := os.Stat(src); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s: Go is installed without its source: train on %s or your own text", GoRoot, Synthetic)
	}
	return src, nil
}
