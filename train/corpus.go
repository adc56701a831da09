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

	"github.com/microscale-go/microscale/internal/limits"
)

// Names of corpora that are not paths.
const (
	goRoot    = "goroot:"
	synthetic = "synthetic:"
)

// A Corpus is a text of bytes, in two parts of which the second is for validation. It implements
// Batches with the byte values as tokens.
type Corpus struct {
	Sources []string // as passed to OpenCorpus or newCorpus

	train, validation []byte
	digest            string // SHA-256 of both parts and their lengths
}

const (
	splitEvery = 16
	minBlock   = 512
)

const (
	maxFile   = 128 << 10 // of a file in a directory: larger ones are generated tables
	maxCorpus = 256 << 20
	maxGo     = 32 << 20
)

// OpenCorpus reads and concatenates texts. A source is a file, a directory, "goroot:" (the source of
// Go's standard library) or "synthetic:" (a generated text, always the same). Of a directory, it
// reads the text files in the order of their paths, without hidden files, links and files larger than
// 128 KiB. Without sources, it reads goroot: if Go is installed with its source, otherwise
// synthetic:.
func OpenCorpus(sources ...string) (*Corpus, error) {
	files, sources, err := openSources(sources)
	if err != nil {
		return nil, err
	}
	return newCorpus(bytes.Join(files, nil), sources...), nil
}

// openSources returns the files of sources, and the names of the default ones without any.
func openSources(sources []string) (files [][]byte, names []string, err error) {
	if len(sources) == 0 {
		sources = []string{goRoot}
		if _, err := goSource(); err != nil {
			sources = []string{synthetic}
		}
	}
	limit := maxCorpus
	for _, s := range sources {
		parts, err := readSource(s, limit)
		if err != nil {
			return nil, nil, err
		}
		for _, part := range parts {
			limit -= len(part)
		}
		files = append(files, parts...)
	}
	return files, sources, nil
}

// newCorpus returns a corpus of text. It cuts the text into 256 blocks, or into fewer of 512 bytes;
// every sixteenth is for validation. sources describe the text.
func newCorpus(text []byte, sources ...string) *Corpus {
	block := max(len(text)/256, minBlock)
	c := &Corpus{Sources: sources}
	sum := sha256.New()
	for i := 0; i*block < len(text); i++ {
		part := text[i*block : min((i+1)*block, len(text))]
		if i%splitEvery == splitEvery-1 {
			c.validation = append(c.validation, part...)
		} else {
			c.train = append(c.train, part...)
		}
	}
	for _, part := range [][]byte{c.train, c.validation} {
		fmt.Fprintf(sum, "%d ", len(part))
		sum.Write(part)
	}
	c.digest = hex.EncodeToString(sum.Sum(nil))
	return c
}

// Name returns the sources, separated by spaces.
func (c *Corpus) Name() string { return strings.Join(c.Sources, " ") }

// Bytes returns the length of the text.
func (c *Corpus) Bytes() int { return len(c.train) + len(c.validation) }

// Text returns the two parts of the text, which must not be changed.
func (c *Corpus) Text() (training, validation []byte) { return c.train, c.validation }

// Digest implements Batches.
func (c *Corpus) Digest() string { return c.digest }

// readSource returns the files of one source, of at most limit bytes together.
func readSource(source string, limit int) (files [][]byte, err error) {
	switch source {
	case "":
		return nil, fmt.Errorf("the name of the corpus is empty: use %s, %s, a file or a directory", goRoot, synthetic)
	case synthetic:
		return [][]byte{synthesize(syntheticSize)}, nil
	case goRoot:
		root, err := goSource()
		if err != nil {
			return nil, err
		}
		return readTree(root, goRoot, min(limit, maxGo), goFile)
	}
	info, err := os.Stat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: use a file, a directory, %s or %s", source, limits.Cause(err), goRoot, synthetic)
	case err != nil:
		return nil, unreadable(source, err)
	case info.IsDir():
		return readTree(source, source, limit, func(string, fs.DirEntry) bool { return true })
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: neither a file nor a directory", source)
	}
	text, err := limits.ReadFile(source, int64(limit))
	if _, ok := errors.AsType[limits.TooLarge](err); ok {
		return nil, tooLarge(source)
	}
	if err != nil {
		return nil, unreadable(source, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: the file is empty", source)
	}
	return [][]byte{text}, checkText(source, text)
}

func unreadable(path string, err error) error {
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		path, err = cause.Path, cause.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

func tooLarge(source string) error {
	return fmt.Errorf("%s: the text is larger than %d MiB: use a part of it", source, maxCorpus>>20)
}

// readTree reads the text files of a directory for which wanted returns true. It stops at limit bytes
// for goRoot, and returns an error for other sources.
func readTree(root, name string, limit int, wanted func(path string, d fs.DirEntry) bool) (files [][]byte, err error) {
	total := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
		part, err := limits.ReadFile(path, maxFile)
		if _, grown := errors.AsType[limits.TooLarge](err); grown {
			return nil
		}
		if err != nil {
			return unreadable(path, err)
		}
		if bytes.IndexByte(part, 0) >= 0 {
			return nil // not a text
		}
		if total+len(part) > limit {
			if name == goRoot {
				return fs.SkipAll
			}
			return tooLarge(name)
		}
		if len(part) > 0 {
			files, total = append(files, part), total+len(part)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if total == 0 {
		return nil, fmt.Errorf("%s: the directory has no text file of at most %d KiB", name, maxFile>>10)
	}
	return files, nil
}

// goFile selects the source of the standard library, without tests, commands and vendored modules.
func goFile(_ string, d fs.DirEntry) bool {
	if d.IsDir() {
		return d.Name() != "cmd" && d.Name() != "vendor" && d.Name() != "testdata"
	}
	return strings.HasSuffix(d.Name(), ".go") && !strings.HasSuffix(d.Name(), "_test.go")
}

// goSource returns the directory of the standard library's source, by the go command.
func goSource() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local") // the installed one: do not download another
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: cannot run the go command: install Go, or use %s or another text", goRoot, synthetic)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	if info, err := os.Stat(src); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s: Go is installed without its source: use %s or another text", goRoot, synthetic)
	}
	return src, nil
}
