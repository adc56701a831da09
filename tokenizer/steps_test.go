package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestSplit divides texts by every kind of pre-tokenizer. The rows of behaviors are those of the
// documentation of Python's tokenizers.
func TestSplit(t *testing.T) {
	const dash = `"type":"Split","pattern":{"String":"-"}`
	for _, c := range []struct{ step, text, want string }{
		{`{` + dash + `,"behavior":"Removed"}`, "the-final--countdown", "the|final|countdown"},
		{`{` + dash + `,"behavior":"Isolated"}`, "the-final--countdown", "the|-|final|-|-|countdown"},
		{`{` + dash + `,"behavior":"MergedWithPrevious"}`, "the-final--countdown", "the-|final-|-|countdown"},
		{`{` + dash + `,"behavior":"MergedWithNext"}`, "the-final--countdown", "the|-final|-|-countdown"},
		{`{` + dash + `,"behavior":"Contiguous"}`, "the-final--countdown", "the|-|final|--|countdown"},
		{`{` + dash + `,"behavior":"Removed","invert":true}`, "the-final--countdown", "-|-|-"},
		{`{"type":"Digits","individual_digits":true}`, "a12b3", "a|1|2|b|3"},
		{`{"type":"Digits"}`, "a12b3", "a|12|b|3"},
		{`{"type":"ByteLevel","use_regex":false,"add_prefix_space":true}`, "a b", " a b"},
		{`{"type":"ByteLevel"}`, "a1  b", "a|1| | b"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, "hey  you", "▁hey|▁|▁you"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":false}`, "hey you", "▁hey▁you"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}`, "hey", "▁hey"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}`, "hey you", "hey|▁you"},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":true}`, "hey", "▁hey"},
	} {
		if got := strings.Join(words(t, c.step, c.text, true), "|"); got != c.want {
			t.Errorf("%s of %q: got %s, want %s", c.step, c.text, got, c.want)
		}
	}
	if got := words(t, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}`, "hey", false); !slices.Equal(got, []string{"hey"}) {
		t.Errorf("scheme first after other text: got %q", got)
	}
}

// words returns the words of a text by a pre-tokenizer.
func words(t *testing.T, data, text string, first bool) (list []string) {
	t.Helper()
	var s step
	if err := json.Unmarshal([]byte(data), &s); err != nil {
		t.Fatal(err)
	}
	splitters, err := newSplitter(&s)
	if err != nil {
		t.Fatal(err)
	}
	split(splitters, text, first, func(word string) { list = append(list, word) })
	return list
}

// TestAddedTokens finds added tokens: the longest, whole words, and those with white space beside them.
func TestAddedTokens(t *testing.T) {
	tok := mustParse(t, byteLevelJSON(func(f map[string]any) {
		f["added_tokens"] = []any{
			map[string]any{"id": 300, "content": "<a>"}, map[string]any{"id": 301, "content": "<a>b"},
			map[string]any{"id": 302, "content": "ok", "single_word": true},
			map[string]any{"id": 303, "content": "<l>", "lstrip": true}, map[string]any{"id": 304, "content": "<r>", "rstrip": true},
		}
		f["post_processor"] = nil
	}))
	for text, want := range map[string]string{
		"<a>b<a>":       "<a>b <a>",
		"ok xok okx ok": "ok Ġ x o k Ġ o k x Ġ ok",
		"a  <l>  a":     "a <l> Ġ Ġ a",
		"a  <r>  a":     "a Ġ Ġ <r> a",
		"<r>  <l>a":     "<r> <l> a",
	} {
		if got := tok.names(tok.Encode(text, Options{})); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// sentencePieceJSON is a small tokenizer.json of the kind of Llama 2.
func sentencePieceJSON(fuse string) []byte {
	return []byte(`{"model": {"type": "BPE", "vocab": {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "▁▁": 4, "<0xC3>": 5, "<0xA9>": 6, "aa": 7},
			"merges": ["▁ ▁", "▁ a", "a a"], "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": ` + fuse + `},
		"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "},
		"content": "▁"}]},
		"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
		{"type": "Fuse"},
			{"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}`)
}

// TestSentencePiece has cases that were worked out by hand: characters that are bytes, unknown ones, and
// several spaces.
func TestSentencePiece(t *testing.T) {
	for _, c := range []struct{ fuse, text, want string }{
		{"true", "aé", "▁a <0xC3> <0xA9>"},
		{"true", "日本a日", "▁ <unk> a <unk>"},
		{"false", "日本a日", "▁ <unk> <unk> a <unk>"},
		{"true", "日é本", "▁ <unk> <0xC3> <0xA9> <unk>"},
		{"true", "  a", "▁▁ ▁a"},
		{"true", "a   aa", "▁a ▁▁ ▁a a"},
	} {
		tok := mustParse(t, sentencePieceJSON(c.fuse))
		if got := tok.names(tok.Encode(c.text, Options{})); got != c.want {
			t.Errorf("%q, fuse_unk %s: got %s, want %s", c.text, c.fuse, got, c.want)
		}
	}
}

// TestDecode compares the text of tokens at once and one after the other. A run of bytes that is not UTF-8
// becomes U+FFFD for each byte; a stream has passed its first characters on by then.
func TestDecode(t *testing.T) {
	llama := mustParse(t, sentencePieceJSON("true"))
	metaspace := mustParse(t,
		[]byte(`{"model": {"vocab": {"▁▁a": 0, "▁b": 1}, "merges": []}, "decoder": {"type": "Metaspace", "replacement": "▁", `+
			`"prepend_scheme": "always"}}`))
	for name, c := range map[string]struct {
		tok           *Tokenizer
		ids           []uint32
		whole, stream string
	}{
		"first space":     {llama, []uint32{3, 3}, "a a", "a a"},
		"two spaces":      {llama, []uint32{4, 3}, "  a", "  a"},
		"character":       {llama, []uint32{5, 6, 2}, "éa", "éa"},
		"half":            {llama, []uint32{5, 2}, "\ufffda", "\ufffda"},
		"a half after it": {llama, []uint32{5, 6, 5, 2}, "\ufffd\ufffd\ufffda", "é\ufffda"},
		"metaspace":       {metaspace, []uint32{0, 1, 0}, "a b  a", "a b  a"},
	} {
		whole, err := c.tok.Decode(c.ids, false)
		if err != nil || whole != c.whole {
			t.Errorf("%s: got %q (%v), want %q", name, whole, err, c.whole)
		}
		s, stream := c.tok.Stream(false), ""
		for _, id := range c.ids {
			text, err := s.Next(id)
			if err != nil {
				t.Fatal(err)
			}
			stream += text
		}
		if stream += s.End(); stream != c.stream {
			t.Errorf("%s: the stream is %q, want %q", name, stream, c.stream)
		}
	}
}

// TestWholeWords checks that with ignore_merges a word that is a token is taken whole, though no merges make it.
func TestWholeWords(t *testing.T) {
	tok := mustParse(t, byteLevelJSON(func(f map[string]any) {
		m, ok := f["model"].(map[string]any)
		if !ok {
			t.Fatal("no model")
		}
		m["ignore_merges"] = true
		m["vocab"].(map[string]int)["Ġxyz"] = 290
	}))
	if got := tok.names(tok.Encode("hello xyz xy", Options{})); got != "hello Ġxyz Ġ x y" {
		t.Errorf("got %s", got)
	}
	tok = mustParse(t, byteLevelJSON(func(f map[string]any) { f["model"].(map[string]any)["vocab"].(map[string]int)["Ġxyz"] = 290 }))
	if got := tok.names(tok.Encode("hello xyz", Options{})); got != "hello Ġ x y z" {
		t.Errorf("without ignore_merges: got %s", got)
	}
}

// TestByteRunes checks ends of the ranges of GPT-2's bytes_to_unicode, and the last byte that it moves.
func TestByteRunes(t *testing.T) {
	for b, want := range map[byte]rune{0: 0x100, ' ': 0x120, '!': '!', '~': '~', 0x7f: 0x121, 0xa0: 0x142, 0xa1: '¡', 0xac: '¬', 0xad: 0x143,
		0xae: '®', 0xff: 'ÿ'} {
		if got := byteRunes[b]; got != want || runeBytes[want] != b {
			t.Errorf("byte %#x is %q, want %q", b, got, want)
		}
	}
}

// TestMergeRandom compares both ways of merging for random words.
func TestMergeRandom(t *testing.T) {
	tok := mustParse(t, byteLevelJSON(nil))
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		word := make([]byte, 1+r.IntN(47))
		for i := range word {
			word[i] = "aahello 12 w"[r.IntN(12)]
		}
		a := tok.model.symbols(nil, string(word))
		b := slices.Clone(a)
		if a, b = a[:tok.model.mergeAll(a)], b[:tok.model.mergeLong(b)]; !slices.Equal(a, b) {
			t.Fatalf("%q: %v and %v", word, a, b)
		}
	}
}

// TestCompose compares the composition of any number of marks with package norm, for up to the 30 that it
// supports.
func TestCompose(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	starters, marks := []rune("aeouxA가"), []rune("\u0301\u0308\u0323\u033f\u0327\u0304\u031b\u0345")
	for range 2000 {
		text := string(starters[r.IntN(len(starters))])
		for range maxMarks + 1 + r.IntN(15) {
			text += string(marks[r.IntN(len(marks))])
		}
		if got, want := composeLong(text), norm.NFC.String(text); got != want {
			t.Fatalf("%+q: got %+q, want %+q", text, got, want)
		}
	}
}

// TestScores checks that of two pairs in a GGUF file of the kind of Llama 2 the one whose token has the
// higher score is merged first, and that a text begins with BOS unless the file says otherwise.
func TestScores(t *testing.T) {
	for _, c := range []struct {
		ab, bc float32
		add    any
		want   string
	}{
		{-1, -2, nil, "<s> ▁ ab c"},
		{-2, -1, nil, "<s> ▁ a bc"},
		{-1, -1, false, "▁ ab c"}, // the lower ids
	} {
		tok, err := FromGGUF(sentencePieceMetadata(func(m map[string]any) {
			m["tokens"], m["scores"] = []string{"<unk>", "<s>", "</s>", "▁", "a", "b", "c", "bc", "ab"}, []float32{0, 0, 0, -9, -9, -9, -9, c.bc,
				c.ab}
			m["token_type"] = []int32{unknownType, controlType, controlType, 1, 1, 1, 1, 1, 1}
			if c.add != nil {
				m["add_bos_token"] = c.add
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.names(tok.Encode("abc", Options{AddSpecial: true})); got != c.want {
			t.Errorf("scores %g and %g: got %s, want %s", c.ab, c.bc, got, c.want)
		}
	}
}

// TestPreTokenizers checks the words of a text for each name of a pre-tokenizer in GGUF files, whether words that are
// tokens are taken whole, and whether texts begin with BOS if the file does not say.
func TestPreTokenizers(t *testing.T) {
	const text = "I'm 12345 xY日"
	type row struct {
		names, want string
		whole, bos  bool
	}
	rows := map[string]row{}
	for _, r := range []row{
		{`bailingmoe bailingmoe2 codeshell command-r deepseek-r1-qwen exaone exaone-moe f2llmv2 grok-2 hunyuan kormo laguna llada-moe
			megrez mellum2 minerva-7b qwen2 qwen35 refact seed-coder smollm solar-open stablelm2 starcoder ufakzeka`, "I|'m| |1|2|3|4|5| xY日", false,
			false},
		{`a.x-4.0 exaone4 gigachat gpt-2 granite-docling jais jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es mellum
			modern-bert mpt olmo phi-2 roberta-bpe trillion`, "I|'m| 12345| xY日", false, false},
		{"falcon-h1 falcon3 jina-v5-nano lfm2 llama-bpe llama-v3 llama3 midm-2.0 pixtral", "I|'m| |123|45| xY日", true, true},
		{"gpt-4o kanana2 llama4 minimax-m2 talkie", "I'm| |123|45| x|Y日", false, false},
		{"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", "I|'m| |123|45| xY|日", false, false},
		{"chatglm-bpe dbrx jais-2 smaug-bpe", "I|'m| |123|45| xY日", false, false},
		{"default falcon", "I|'|m| |123|45| xY日", false, false},
		{"glm4 glm5 minicpm5", "I|'m| |123|45| xY日", true, false},
		{"bloom gpt3-finnish poro-chat", "I'm| 12345| xY日", false, false},
		{"gemma4 granite-embed-multi-311m", "I'm 12345 xY日", false, true},
		{"cohere2moe tiny_aya", "I'm| |12|345| x|Y日", false, false},
		{"granite-embed-multi-97m", "I'm| |123|45| x|Y日", true, false},
		{"viking", "I'm| |1|2|3|4|5| xY日", false, false},
		{"chameleon", "I|'|m| |1|2|3|4|5| xY日", false, true},
		{"kimi-k2", "I'm| |123|45| x|Y|日", false, false},
		{"deepseek-llm", "I|'|m| |12345| xY|日", false, false},
		{"sarvam-moe", "I'm 12345 xY日", false, false},
		{"afmoe", "I|'m| |12|345| xY|日", false, false},
		{"superbpe", "I'm |12|345| xY日", false, false},
		{"youtu", "I'm| |1|2|3|4|5| x|Y|日", true, false},
		{"tekken", "I|'m| |1|2|3|4|5| x|Y日", true, true},
		{"spark2_5", "I|'m| |1|2|3|4|5| xY|日", false, false},
		{"deepseek-coder", "I|'|m| |1|2|3|4|5| xY|日", false, false},
	} {
		for _, name := range strings.Fields(r.names) {
			rows[name] = r
		}
	}
	rows[""] = rows["default"]
	if len(rows) != len(preTokenizers) {
		t.Errorf("got %d rows for %d pre-tokenizers", len(rows), len(preTokenizers))
	}
	for name, c := range rows {
		tok, err := FromGGUF(byteLevelMetadata(func(m map[string]any) {
			m["pre"] = name
			delete(m, "add_bos_token")
		}))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		split(tok.splitters, text, true, func(word string) { list = append(list, word) })
		if got := strings.Join(list, "|"); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if _, bos := tok.Begin(); bos != c.bos || tok.model.wholeWords != c.whole {
			t.Errorf("%s: BOS %t, whole words %t, want %t and %t", name, bos, tok.model.wholeWords, c.bos, c.whole)
		}
	}
}

// TestMovedCategory: U+1171E was Mn in Unicode 15, and is Mc in Unicode 16.
func TestMovedCategory(t *testing.T) {
	for name, want := range map[string]bool{"M": true, "Mc": true, "Mn": false} {
		if property(name).has(0x1171e) != want {
			t.Errorf("U+1171E in %s: want %t", name, want)
		}
	}
}
