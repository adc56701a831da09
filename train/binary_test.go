package train

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBinarySources: files that are no text are errors that say what to do, and texts in other encodings than
// UTF-8 are not.
func TestBinarySources(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 3))
	var tokens, dense []byte // of a vocabulary of 50257, and without a byte of zero
	for range 5000 {
		tokens = binary.LittleEndian.AppendUint16(tokens, uint16(random.IntN(50257)))
		dense = append(dense, byte(1+random.IntN(255)))
	}
	text := strings.Repeat("Dies ist ein Text \xfcber \xc4pfel und B\xe4ume. ", 50) // in Latin-1
	for name, tc := range map[string]struct{ data, want string }{
		"a.parquet": {"PAR1" + text + "PAR1", "it is a Parquet file, no text to train on: write its column of text to a file"},
		"a.npy": {"\x93NUMPY\x01\x00v\x00{'descr': '<u2'}" + string(tokens),
			"it is a NumPy array, no text to train on: use the text that its tokens were made from"},
		"train.bin":  {string(tokens), "is zero, so that it is not a text but perhaps tokens: use the text that they were made from"},
		"train.idx":  {"MMIDIDX\x00\x00\x01", "it is the index of a file of tokens"},
		"a.jsonl.gz": {"\x1f\x8b\x08" + text, "it is compressed by gzip, no text to train on: unpack it"},
		"dense.bin":  {string(dense), "bytes are not UTF-8"},
		"utf16.txt":  {"\xff\xfea\x00b\x00", "it is in UTF-16, no text to train on: convert it to UTF-8"},
		"latin.txt":  {text, ""},
		"utf8.txt":   {strings.Repeat("Ein Satz über Äpfel. 日本語。 ", 40), ""},
		"odd.bin":    {strings.Repeat("plain text in a file of another name. ", 40), ""},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(tc.data), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenCorpus(path)
		_, again := OpenDocuments("\n", path)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || again == nil || !strings.Contains(err.Error(), path+": ") ||
			!strings.Contains(err.Error(), tc.want) || again.Error() != err.Error()) {
			t.Errorf("%s: error %v, of documents %v, want %q", name, err, again, tc.want)
		}
	}
}
