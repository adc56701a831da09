package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tokenizer"
)

// classes are the classes of characters that pre-tokenizers of published models have, and the categories of letters,
// marks and numbers that these consist of.
var classes = []string{
	`\p{L}`, `\p{Lu}`, `\p{Ll}`, `\p{Lt}`, `\p{Lm}`, `\p{Lo}`, `\p{M}`, `\p{Mn}`, `\p{Mc}`, `\p{N}`, `\p{Nd}`, `\p{Nl}`, `\p{No}`,
	`\p{P}`, `\p{S}`, `\p{Z}`, `\p{Han}`, `\p{Hiragana}`, `\p{Katakana}`, `\p{Hangul}`, `\p{Thai}`, `\s`, `\d`, `[^\s\p{L}\p{N}]`,
	`[^\r\n\p{L}\p{P}\p{S}]`,
}

// TestClasses compares the classes of all characters with those of Python's package regex, whose Unicode is 16, too:
// splitting removes the characters of a class, and the tokens of the rest are its text. Of planes 4 to 16, where no
// character is assigned but 337 in plane 14, it takes the first and last 1,024, with -full all.
func TestClasses(t *testing.T) {
	interpreter, dir := python(t, "regex==2024.11.6"), t.TempDir()
	var everything strings.Builder
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if in := c & 0xffff; (c < 0xd800 || c >= 0xe000) && (c < 0x40000 || in < 1024 || in >= 0x10000-1024 || *slow.FullRun) {
			everything.WriteRune(c)
		}
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(everything.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	script(t, interpreter, "classes.py", append([]string{dir, text}, classes...)...)
	vocabulary := make([]string, 256)
	for b := range vocabulary {
		name, err := tokenizer.Bytes().Token(uint32(b))
		if err != nil {
			t.Fatal(err)
		}
		vocabulary[b] = fmt.Sprintf("%q: %d", name, b)
	}
	for i, class := range classes {
		tok, err := tokenizer.Parse(
			[]byte(fmt.Sprintf(`{"model": {"type": "BPE", "vocab": {%s}, "merges": []}, "decoder": {"type": "ByteLevel"},
				"pre_tokenizer": {"type": "Sequence",
			"pretokenizers": [{"type": "Split", "pattern": {"Regex": %q}, "behavior": "Removed"}, {"type": "ByteLevel", "add_prefix_space": false,
			"use_regex": false}]}}`,
				strings.Join(vocabulary, ", "), class)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Decode(tok.Encode(everything.String(), tokenizer.Options{}), false)
		if err != nil {
			t.Fatal(err)
		}
		want := string(read(t, dir, fmt.Sprintf("%d.txt", i)))
		if got == want {
			continue
		}
		has := map[rune]bool{}
		for _, c := range want {
			has[c] = true
		}
		for _, c := range got {
			if has[c] {
				delete(has, c)
			} else {
				has[c] = false
			}
		}
		for c, outside := range has {
			t.Errorf("%s: %U is outside for Python: %t", class, c, outside)
			if len(has) > 20 {
				t.Fatalf("%s: %d characters differ", class, len(has))
			}
		}
	}
}
