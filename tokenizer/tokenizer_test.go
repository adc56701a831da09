package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// byteLevelJSON is a small tokenizer.json: all bytes, a few merges, two added tokens.
func byteLevelJSON(change func(f map[string]any)) []byte {
	vocab := map[string]int{}
	for i, r := range byteRunes {
		vocab[string(r)] = i
	}
	var merges []string
	for _, m := range []string{"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "1 2", "a a", "aa a"} {
		merges = append(merges, m)
		vocab[strings.ReplaceAll(m, " ", "")] = len(vocab)
	}
	f := map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": merges},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"added_tokens": []any{map[string]any{"id": 300, "content": "<|end|>", "special": true}, map[string]any{"id": 301, "content": "<tool>",
			"rstrip": true}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<|end|>"}}, map[string]any{"Sequence": map[string]any{}}},
			"special_tokens": map[string]any{"<|end|>": map[string]any{"ids": []int{300}}}},
	}
	if change != nil {
		change(f)
	}
	data, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return data
}

func mustParse(t testing.TB, data []byte) *Tokenizer {
	t.Helper()
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func (t *Tokenizer) names(ids []uint32) string {
	var names []string
	for _, id := range ids {
		names = append(names, t.tokens[id])
	}
	return strings.Join(names, " ")
}

// TestEncode has cases that were worked out by hand.
func TestEncode(t *testing.T) {
	tok := mustParse(t, byteLevelJSON(nil))
	for _, c := range []struct {
		text string
		o    Options
		want string
	}{
		{"hello world", Options{}, "hello Ġwo r l d"},
		{"hell", Options{}, "hell"},
		{"aaaa", Options{}, "aa aa"},
		{"aaaaa", Options{}, "aa aaa"},
		{"12 1", Options{}, "12 Ġ 1"},
		{"hello", Options{AddSpecial: true}, "<|end|> hello"},
		{"he<|end|>llo", Options{}, "he <|end|> ll o"},
		{"he<|end|>", Options{Literal: true}, "he < | e n d | >"},
		{"<tool>  he", Options{}, "<tool> he"},
		{"<tool>", Options{Literal: true}, "<tool>"}, // is no special token
		{"", Options{}, ""},
	} {
		if got := tok.names(tok.Encode(c.text, c.o)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

// TestMergeLong compares the heap with looking at all pairs.
func TestMergeLong(t *testing.T) {
	tok := mustParse(t, byteLevelJSON(nil))
	for _, word := range []string{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "hellohehelloaahellllo12aaa", "a", "hhee"} {
		a := tok.model.symbols(nil, word)
		b := slices.Clone(a)
		a, b = a[:tok.model.mergeAll(a)], b[:tok.model.mergeLong(b)]
		if !slices.Equal(a, b) {
			t.Errorf("%q: %v and %v", word, a, b)
		}
	}
}

// TestPattern compares patterns with Go's package regexp where that has them.
func TestPattern(t *testing.T) {
	texts := []string{"", "a", "Hello, World 123!! \r\n\r\n x", "ÄÖÜäöü ǅ日本", "  \t\n  a", "I'M you'll '", "\xff\xfea\xff", "x\u00a0\u0085y"}
	for _, expression := range []string{`\p{L}+`, ` ?\p{N}{1,3}|[^\p{L}]`, `(?i:'s|'m|'ll)?[^\r\n]`, `[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+`,
		`(?:ab|a)b?c*`, `[[:alpha:]]?x`} {
		p, err := compile(expression)
		if strings.Contains(expression, "[[") {
			if err == nil {
				t.Errorf("%s: no error", expression)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		re := regexp.MustCompile(expression)
		for _, text := range append(texts, "abc", "ac", "abbc") {
			for at := 0; at <= len(text); at++ {
				if at < len(text) && !utf8.RuneStart(text[at]) {
					continue
				}
				want := -1
				if m := re.FindStringIndex(text[at:]); m != nil && m[0] == 0 {
					want = at + m[1]
				}
				if got := p.match(text, at); got != want {
					t.Errorf("%s at %d of %q: got %d, want %d", expression, at, text, got, want)
				}
			}
		}
	}
	p, err := compile(`\s+(?!\S)|\s+`)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"   x": 2, "   ": 3, " x": 1, "\u3000\u00a0 x": 5, "\u200b": -1, "\x1c": -1} {
		if got := p.match(text, 0); got != want {
			t.Errorf("spaces of %q: got %d, want %d", text, got, want)
		}
	}
	for _, bad := range []string{`(?<=a)b`, `a(?!b)`, `\bx`, `\w+`, `(`, `(ab)+c`, `(ab){2,}`, `a*?`, `[b-a]`, `\p{Odd}`, `[a`, `\q`} {
		if _, err := compile(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// TestNestedOptions compiles deeply nested options, in time that is linear in their depth.
func TestNestedOptions(t *testing.T) {
	const depth = 40 // 2^40 steps would not end
	done := make(chan error, 1)
	go func() {
		_, err := compile(strings.Repeat("(?:a", depth) + strings.Repeat("b)?", depth))
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the pattern was not compiled within 10 s")
	}
}

// TestErrors lists files that are not supported or damaged.
func TestErrors(t *testing.T) {
	set := func(path, value string) []byte {
		return byteLevelJSON(func(f map[string]any) {
			var v any
			if err := json.Unmarshal([]byte(value), &v); err != nil {
				panic(err)
			}
			keys := strings.Split(path, ".")
			for _, k := range keys[:len(keys)-1] {
				f = f[k].(map[string]any)
			}
			f[keys[len(keys)-1]] = v
		})
	}
	for want, data := range map[string][]byte{
		"unexpected end":                   []byte("{"),
		`model "Unigram" is not supported`: set("model.type", `"Unigram"`),
		"vocabulary":                       set("model.vocab", `[["a",1]]`),
		"is not a pair":                    set("model.merges", `["ab"]`),
		"not in the vocabulary":            set("model.merges", `[["h","zz"]]`),
		"dropout 0.5":                      set("model.dropout", `0.5`),
		"end_of_word_suffix":               set("model.end_of_word_suffix", `"</w>"`),
		`unk_token "uu" is not`:            set("model.unk_token", `"uu"`),
		"can make a text 128 times as long": set("normalizer", `{"type":"Sequence","normalizers":[`+
			strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 6)+`{"type":"Replace","pattern":{"String":""},`+
			`"content":"b"}]}`),
		"can make a text 96 times as long": set("normalizer", `{"type":"Sequence","normalizers":[`+
			strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 5)+`{"type":"NFC"}]}`),
		`unknown normalizer "Lowercase"`: set("normalizer", `{"type":"Lowercase"}`),
		`unknown pre-tokenizer "Bert`:    set("pre_tokenizer", `{"type":"BertPreTokenizer"}`),
		`unknown behavior "Odd"`:         set("pre_tokenizer", `{"type":"Split","behavior":"Odd","pattern":{"String":" "}}`),
		`lookaround`: set("pre_tokenizer",
			`{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a(?=b)"}}`),
		`unknown post-processor "Bert"`:                    set("post_processor", `{"type":"Bert"}`),
		`unknown decoder "WordPiece"`:                      set("decoder", `{"type":"WordPiece"}`),
		"no decoder":                                       set("decoder", `null`),
		`"model" is missing`:                               []byte("{}"),
		"want an object, not a list":                       []byte("[]"),
		"want an object, not a number":                     []byte("3"),
		`vocabulary is missing`:                            set("model.vocab", `null`),
		`["h" "e" "l"] is not a pair`:                      set("model.merges", `[["h","e","l"]]`),
		`["h"] is not a pair`:                              set("model.merges", `[["h"]]`),
		"pattern of Replace is missing":                    set("normalizer", `{"type":"Replace","content":"a"}`),
		"pattern of Split: want an object":                 set("pre_tokenizer", `{"type":"Split","behavior":"Isolated","pattern":3}`),
		"vocabulary: want an integer of 0 or more, not -1": set("model.vocab", `{"a":-1}`),
		"normalizer: want an object, not a string":         set("normalizer", `"NFC"`),
		`"x" and "y" have the same id 7`:                   set("model.vocab", `{"y":7,"x":7}`),
		`"<q>" has id 4000000000`: set("post_processor",
			`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<q>"}}],"special_tokens":{"<q>":{"ids":[4000000000]}}}`),
		"want less than 16777216": set("added_tokens", `[{"id":4294967295,"content":"x"}]`),
	} {
		if _, err := Parse(data); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := mustParse(t, byteLevelJSON(nil)).Decode([]uint32{9999}, false); err == nil {
		t.Error("decoding an id without a token: no error")
	}
}

// TestValid compares the replacement of what is not UTF-8 with examples of the Unicode standard
// (chapter 3, tables 3-8 to 3-11).
func TestValid(t *testing.T) {
	for text, want := range map[string]string{
		"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42": "\ufffd\ufffd\ufffd\ufffd\ufffdA\ufffd\ufffdB",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41": "\ufffd\ufffd\ufffd\ufffdA",
		"ok":                                   "ok",
		"\xe6\x97":                             "\ufffd",
	} {
		if got := toValid([]byte(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestByteToken checks which tokens stand for a byte: those with two hexadecimal digits.
func TestByteToken(t *testing.T) {
	for token, want := range map[string]int{"<0x0A>": 10, "<0xff>": 255, "<0x F>": -1, "<0xG0>": -1, "<0xA>": -1, "<0x0A": -1, "<0x0A>>": -1,
		"<0x0A]": -1, "<0x0A)": -1, "<1x0A>": -1} {
		got := -1
		if b, ok := byteToken(token); ok {
			got = int(b)
		}
		if got != want {
			t.Errorf("%s: got byte %d, want %d", token, got, want)
		}
	}
}

// TestLongMarks composes a character with more marks than package norm does.
func TestLongMarks(t *testing.T) {
	marks := strings.Repeat("\u0301", 40)
	for text, want := range map[string]string{
		"e" + marks:                  "é" + marks[2:],
		"xe\u0323" + marks + "y":     "xẹ́"[:len("xẹ")] + marks + "y",
		"e\u0301":                    "é",
		"\u1100\u1161\u11a8":         "각",
		"a" + marks + "\u0323" + "b": "ạ" + marks + "b",
	} {
		if got := (nfc{}).normalize(text); got != want {
			t.Errorf("%+q: got %+q, want %+q", text, got, want)
		}
	}
}

// FuzzRoundTrip checks that byte-level BPE returns every byte, and that a stream of tokens gives
// the text of all at once.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"hello world", "aaaa<|end|>12", "\xff\x00é日本🤷", strings.Repeat("a", 100)} {
		f.Add(s)
	}
	tok := mustParse(f, byteLevelJSON(func(f map[string]any) { f["added_tokens"], f["post_processor"] = []any{}, nil }))
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text, Options{})
		got, err := tok.Decode(ids, false)
		if err != nil || got != toValid([]byte(text)) {
			t.Fatalf("%q became %q (%v)", text, got, err)
		}
		var bytes []byte
		for _, id := range ids {
			bytes = appendBytes(bytes, tok.tokens[id])
		}
		if string(bytes) != text {
			t.Fatalf("%q became the bytes %q", text, bytes)
		}
	})
}

// FuzzParse reads damaged files.
func FuzzParse(f *testing.F) {
	f.Add(byteLevelJSON(nil), "hello <tool> x")
	f.Add([]byte(`{"model":{"vocab":{"a":0,"<0x62>":1,"▁":2,"▁a":3},"merges":[["▁","a"]],"byte_fallback":true},`+
		`"decoder":{"type":"Metaspace","replacement":"▁"},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}}`),
		"ab c")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		if len(data) > 1<<16 || len(text) > 1<<10 {
			return
		}
		tok, err := Parse(data)
		if err != nil {
			return
		}
		if _, err := tok.Decode(tok.Encode(text, Options{AddSpecial: true}), true); err != nil {
			t.Error(err)
		}
	})
}

func ExampleTokenizer_Encode() {
	t, err := Parse([]byte(`{
		"model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "b": 2, "ab": 3, "▁ab": 4}, "merges": ["a b", "▁ ab"]},
		"normalizer": {"type": "Sequence", "normalizers": [
			{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
		"decoder": {"type": "Sequence", "decoders": [
			{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1,
			"stop": 0}]}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := t.Encode("ab ba", Options{})
	text, err := t.Decode(ids, false)
	fmt.Println(ids, text, err)
	// Output: [4 0 2 1] ab ba <nil>
}

// TestBytes checks that all bytes are their own ids, alone and in long texts.
func TestBytes(t *testing.T) {
	b := Bytes()
	var text []byte
	for i := range 2048 {
		text = append(text, byte(i*i>>3))
	}
	for i, id := range b.Encode(string(text), Options{AddSpecial: true}) {
		if id != uint32(text[i]) {
			t.Fatalf("byte %d, %d: got id %d", i, text[i], id)
		}
	}
	if got, err := b.Decode(b.Encode("né\x00", Options{}), false); err != nil || got != "né\x00" || b.Size() != 256 {
		t.Errorf("%d tokens: got %q, %v", b.Size(), got, err)
	}
}
