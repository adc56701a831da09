package train

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCorpus(t *testing.T) {
	dir := t.TempDir()
	one, two := bytes.Repeat([]byte("one "), 3000), bytes.Repeat([]byte("two\n"), 2000)
	write(t, filepath.Join(dir, "b", "two.txt"), two)
	write(t, filepath.Join(dir, "a.txt"), one)
	write(t, filepath.Join(dir, ".hidden"), one)
	write(t, filepath.Join(dir, ".git", "x.txt"), one)
	write(t, filepath.Join(dir, "binary"), []byte("x\x00y"))
	write(t, filepath.Join(dir, "table.txt"), bytes.Repeat([]byte("x"), 128<<10+1)) // larger than 128 KiB
	c, err := OpenCorpus(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Bytes() != len(one)+len(two) {
		t.Errorf("got %d bytes, want those of two files, %d", c.Bytes(), len(one)+len(two))
	}
	if !bytes.HasPrefix(c.train, one[:512]) || !bytes.HasSuffix(c.train, two[:512]) {
		t.Error("the files are not in the order of their paths")
	}
	large := filepath.Join(t.TempDir(), "large")
	write(t, filepath.Join(large, "a.txt"), bytes.Repeat([]byte("x"), 128<<10))
	if c, err := OpenCorpus(large); err != nil || c.Bytes() != 128<<10 {
		t.Errorf("a file of 128 KiB in a directory: %v", err)
	}
	both, err := OpenCorpus(filepath.Join(dir, "a.txt"), filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if both.Digest() != c.Digest() {
		t.Error("digests of the same text from one and two sources differ")
	}
	if other, _ := OpenCorpus(filepath.Join(dir, "a.txt")); other.Digest() == c.Digest() {
		t.Error("another text has the same digest")
	}
}

func TestOpenCorpusErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "empty"), nil)
	write(t, filepath.Join(dir, "binary", "x"), []byte{0, 1})
	write(t, filepath.Join(dir, "tiny"), []byte("tiny"))
	secret := filepath.Join(dir, "secret")
	write(t, secret, []byte("secret"))
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ source, want string }{
		{"", "the name of the corpus is empty"},
		{"nowhere", "no such file or directory"},
		{"empty", "the file is empty"},
		{"binary", "no text file"},
		{"secret", "cannot be read"},
	} {
		source := tc.source
		if source != "" {
			source = filepath.Join(dir, source)
		}
		_, err := OpenCorpus(source)
		if err == nil && tc.source == "secret" && os.Getuid() == 0 {
			continue // root reads everything
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), source) {
			t.Errorf("%q: got error %v, want %q", tc.source, err, tc.want)
		}
	}
	c, err := OpenCorpus(filepath.Join(dir, "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Training(1, 0, 1, 64); err == nil || !strings.Contains(err.Error(),
		"a text of 4 bytes is too short for sequences of 64, want at least 8192 bytes") {
		t.Errorf("error %v", err)
	}
}

// TestSufficientBytes checks that a text of the length that the error asks for is long enough, for
// sequences of any length.
func TestSufficientBytes(t *testing.T) {
	for _, sequence := range []int{1, 64, 511, 512, 513, 1000, 4096, 10000, 66000} {
		need := sufficientBytes(sequence)
		c := newCorpus(make([]byte, need), "test")
		_, _, errTraining := c.Training(1, 0, 1, sequence)
		_, _, errValidation := c.Validation(1, sequence)
		if errTraining != nil || errValidation != nil {
			t.Errorf("%d bytes: %v, %v", need, errTraining, errValidation)
		}
		if _, _, err := newCorpus(make([]byte, max(512, sequence)), "test").Validation(1, sequence); err == nil {
			t.Errorf("sequences of %d: got no error for a short text", sequence)
		}
	}
}

// TestGoRoot reads the source of the standard library.
func TestGoRoot(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	if _, err := goSource(); err != nil {
		t.Skip(err)
	}
	c, err := OpenCorpus()
	if err != nil {
		t.Fatal(err)
	}
	if c.Bytes() < 4<<20 || c.Bytes() > maxGo || !bytes.Contains(c.train[:4096], []byte("package tar")) {
		t.Errorf("got %d bytes that begin with %.60q", c.Bytes(), c.train)
	}
}

func TestSynthetic(t *testing.T) {
	a, b := synthesize(1<<16), synthesize(1<<15)
	if !bytes.HasPrefix(a, b) || len(a) != 1<<16 {
		t.Error("two calls return different texts")
	}
	const want = "Nine and four make thirteen."
	if !bytes.Contains(a, []byte("make")) || bytes.Contains(a, []byte(strings.Replace(want, "thirteen", "twelve", 1))) {
		t.Error("sums are missing or wrong")
	}
	t.Logf("%s", a[:600])
}

// TestWindows checks that training windows lie within the text, depend on seed and step, and cover all
// of it, and that validation windows do not overlap.
func TestWindows(t *testing.T) {
	const length, sequence = 1000, 10
	first, last := length, 0
	for step := range 500 {
		for _, at := range trainingStarts(length, sequence, 4, 1, step) {
			first, last = min(first, at), max(last, at)
		}
	}
	if first > 5 || last < length-sequence-6 || last > length-sequence-1 {
		t.Errorf("got windows from %d to %d", first, last)
	}
	a, b := trainingStarts(length, sequence, 4, 1, 7), trainingStarts(length, sequence, 4, 2, 7)
	if a[0] == b[0] && a[1] == b[1] {
		t.Error("two seeds draw the same windows")
	}
	for _, count := range []int{1, 5, 98, 99, 200} {
		starts := validationStarts(length, sequence, count)
		if len(starts) != min(count, 99) {
			t.Errorf("got %d windows, want %d", len(starts), count)
		}
		for i, at := range starts {
			if at+sequence+1 > length || i > 0 && at < starts[i-1]+sequence {
				t.Errorf("%d windows: window %d starts at %d", count, i, at)
			}
		}
	}
	tokens, targets := windows([]byte("abcdef"), []int{0, 3}, 2)
	if got := string([]byte{byte(tokens[0]), byte(tokens[1]), byte(tokens[2]), byte(tokens[3]), byte(targets[0]),
		byte(targets[3])}); got != "abdebf" {
		t.Errorf("got tokens and targets %q", got)
	}
}

// TestCorpusSplit: every sixteenth block of a corpus is for validation, and nothing is lost.
func TestCorpusSplit(t *testing.T) {
	text := make([]byte, 32*minBlock+100)
	for i := range text {
		text[i] = byte('A' + i/minBlock) // the number of the block
	}
	c := newCorpus(text)
	if len(c.validation) != 2*minBlock || c.validation[0] != 'A'+15 || c.validation[minBlock] != 'A'+31 || len(c.train) != 30*minBlock+100 ||
		bytes.ContainsAny(c.train, "P`") {
		t.Errorf("%d bytes for training and %d for validation", len(c.train), len(c.validation))
	}
}

// TestCorpusErrors: errors name the file that could not be read, and the limit.
func TestCorpusErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{unreadable("dir", &fs.PathError{Op: "open", Path: "dir/file", Err: fs.ErrPermission}), "dir/file: cannot be read: permission denied"},
		{unreadable("dir", fs.ErrPermission), "dir: cannot be read: permission denied"},
		{tooLarge("dir"), "dir: the text is larger than 256 MiB: use a part of it"},
	} {
		if tc.err.Error() != tc.want {
			t.Errorf("got %q, want %q", tc.err, tc.want)
		}
	}
}
