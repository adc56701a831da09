package train

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// binaries are files that are no text, by their first bytes, with what to do instead.
var binaries = []struct{ magic, kind, remedy string }{
	{"PAR1", "a Parquet file", "write its column of text to a file"},
	{"ARROW1", "an Arrow file", "write its column of text to a file"},
	{"\x93NUMPY", "a NumPy array", "use the text that its tokens were made from"},
	{"MMIDIDX\x00\x00", "the index of a file of tokens", "use the text that its tokens were made from"},
	{"GGUF", "a model", "use a text"},
	{"SQLite format 3\x00", "a database", "write its column of text to a file"},
	{"%PDF-", "a PDF document", "convert it to text"},
	{"PK\x03\x04", "a zip archive", "unpack it"},
	{"\x1f\x8b", "compressed by gzip", "unpack it"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it"},
	{"\xfd7zXZ\x00", "compressed by xz", "unpack it"},
	{"BZh", "compressed by bzip2", "unpack it"},
	{"\xff\xfe", "in UTF-16", "convert it to UTF-8"},
	{"\xfe\xff", "in UTF-16", "convert it to UTF-8"},
}

// checkText returns an error if the file of a source is no text: by its first bytes, if it has bytes of zero, as
// files of tokens do, or if most of its bytes beyond ASCII are not UTF-8.
func checkText(source string, data []byte) error {
	for _, b := range binaries {
		if bytes.HasPrefix(data, []byte(b.magic)) {
			return fmt.Errorf("%s: it is %s, no text to train on: %s", source, b.kind, b.remedy)
		}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("%s: byte %d is zero, so that it is not a text but perhaps tokens: use the text that they were made from (package "+
			"train takes tokens as Batches)", source, i)
	}
	var characters, invalid int // beyond ASCII
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r >= utf8.RuneSelf {
			characters++
		}
		if r == utf8.RuneError && size == 1 {
			invalid++
		}
		rest = rest[size:]
	}
	if invalid > characters/2 && invalid > len(data)/8 {
		return fmt.Errorf("%s: %d of %d bytes are not UTF-8, so that it is not a text: convert it to UTF-8, or use the text that its tokens "+
			"were made from", source, invalid, len(data))
	}
	return nil
}
