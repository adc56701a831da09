package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// TestEnds checks which tokens of a GGUF file end an answer, and that those that the file types as text become special.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		tokens, template string
		kind             int32
		ids              map[string]uint32
		ends, retyped    string
	}{
		"typed":             {"a <|im_end|> <x>", "", controlType, nil, "<|im_end|>", ""},
		"user-defined":      {"a <|im_end|> <x>", "", userDefinedType, nil, "<|im_end|>", "<|im_end|>"},
		"text of a message": {"a <|im_end|> </s>", "x<|im_end|>", normalType, nil, "<|im_end|>", "<|im_end|>"},
		"text":              {"a </s>", "", normalType, nil, "", ""}, // HTML
		"named":             {"a <x> <y> <z>", "", controlType, map[string]uint32{"eos": 1, "eot": 2, "eom": 3}, "<x> <y> <z>", ""},
		"not a token":       {"a <x>", "", controlType, map[string]uint32{"eos": 9}, "", ""},
		"gpt-oss":           {"<|start|> <|end|> <|return|> <|call|>", "", controlType, map[string]uint32{"eos": 2}, "<|return|> <|call|>", ""},
		"Phi-3":             {"<|end|> <|call|>", "", controlType, nil, "<|end|> <|call|>", ""},
		"Gemma 4":           {"</s> <|tool_response>", "", controlType, nil, "<|tool_response>", ""},
	} {
		value := byteLevelMetadata(func(m map[string]any) {
			tokens := strings.Fields(c.tokens)
			m["tokens"], m["merges"], m["tokenizer.chat_template"] = tokens, []string{}, c.template
			m["token_type"] = slices.Repeat([]int32{c.kind}, len(tokens))
			delete(m, "eos_token_id")
			for key, id := range c.ids {
				m[key+"_token_id"] = id
			}
		})
		tok, err := FromGGUF(value)
		if err != nil {
			t.Fatal(err)
		}
		s, err := GGUFSpecial(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.names(s.Ends); got != c.ends || strings.Join(s.Retyped, " ") != c.retyped {
			t.Errorf("%s: got %q, retyped %q, want %q and %q", name, got, s.Retyped, c.ends, c.retyped)
		}
		for _, id := range s.Ends {
			if !tok.IsSpecial(id) {
				t.Errorf("%s: token %d is text", name, id)
			}
		}
	}
}

// TestDefaults checks what a GGUF file does not say: the tokens of llama.cpp, and equal scores.
func TestDefaults(t *testing.T) {
	value := sentencePieceMetadata(func(m map[string]any) {
		for _, key := range []string{"bos_token_id", "eos_token_id", "scores"} {
			delete(m, key)
		}
		m["add_eos_token"] = true
	})
	tok, err := FromGGUF(value)
	if err != nil {
		t.Fatal(err)
	}
	// Without scores, the leftmost pair is merged: "hell" is "he" and "ll", of which "he" is first.
	if got, want := tok.names(tok.Encode("hello", Options{AddSpecial: true})), "<s> ▁hello </s>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s, err := GGUFSpecial(value)
	if err != nil || s.IDs[bosName] != 1 || s.IDs[eosName] != 2 || !slices.Equal(s.Ends, []uint32{2}) {
		t.Errorf("got %v (%v)", s, err)
	}
	if s, err = GGUFSpecial(byteLevelMetadata(func(m map[string]any) { m["pre"] = "glm4"; delete(m, "bos_token_id") })); err != nil ||
		len(s.IDs) != 1 {
		t.Errorf("glm4: got %v (%v), want EOS only", s, err)
	}
}

// TestSwallowedSpace checks that the special tokens of Phi-3, which is recognized by its name, swallow the white space after them.
func TestSwallowedSpace(t *testing.T) {
	for name, want := range map[string]string{"Phi3 mini": "<s> ▁ <0x0A> ▁hello </s> ▁hello",
		"Llama": "<s> ▁ <0x0A> ▁hello </s> ▁ <0x0A> ▁hello"} {
		tok, err := FromGGUF(sentencePieceMetadata(func(m map[string]any) { m["general.name"] = name }))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.names(tok.Encode("<s>\n hello</s>\n hello", Options{})); strings.ReplaceAll(got, "▁ hello", "▁hello") != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestDigitGroups checks the scanners of digits.
func TestDigitGroups(t *testing.T) {
	for pattern, want := range map[string]string{
		digitGroups:     "a |1|234|567|b |½|123| |½12", // ½ is a number
		wordDigitGroups: "a 1234567b ½|123| ½|12",
		digitBoundaries: "a 1|234|567|b ½|123| ½12",
	} {
		var words []string
		patternSplit{find: scanners[pattern]}.split("a 1234567b ½123 ½12", true, func(word string) { words = append(words, word) })
		if got := strings.Join(words, "|"); got != want {
			t.Errorf("%s: got %s, want %s", pattern, got, want)
		}
	}
	find := scanners[digitGroups]
	n, text := 0, strings.Repeat("1", 3_000_000)
	for at := 0; at < len(text); n++ { // in time that is linear in the digits
		_, at = find(text, at)
	}
	if n != 1_000_000 {
		t.Errorf("got %d groups", n)
	}
}

// TestClasses checks sets of characters: those of Unicode 16, classes within classes, intersections and escapes.
func TestClasses(t *testing.T) {
	for expression, c := range map[string]struct{ in, out string }{
		`\p{L}`:                      {"aä\U000105c0\u1c89", "1 "},
		`\P{L}`:                      {"1 ", "aä\U000105c0"},
		`[^\p{L}\s]`:                 {"1", "a \u00a0\U000105c0"},
		`[\p{L}&&[^\p{Han}]]`:        {"aä", "日\U0002ebf0"},
		`[^\p{L}&&[^\p{Han}]]`:       {"日1", "a"},
		`[a-c[x\d]\]\-\x{e9}\u00ea]`: {"abcx1٣]-éê", "dy["},
		`\d`:                         {"1٣\U00010d40", "½a"},
		`(?i:[k])`:                   {"kK\u212a", "l"},
		`[]a]`:                       {"]a", "b"},
		`\p{Lu}|\pN`:                 {"A½", "a"},
	} {
		p, err := compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.in {
			if p.match(string(r), 0) != len(string(r)) {
				t.Errorf("%s: %q does not match", expression, r)
			}
		}
		for _, r := range c.out {
			if p.match(string(r), 0) >= 0 {
				t.Errorf("%s: %q matches", expression, r)
			}
		}
	}
	nested := func(depth int) string { return strings.Repeat("[", depth) + "a" + strings.Repeat("]", depth) }
	if p, err := compile(nested(maxDepth)); err != nil || p.match("a", 0) != 1 {
		t.Errorf("%d classes in one another: %v", maxDepth, err)
	}
	for _, expression := range []string{nested(maxDepth + 1), strings.Repeat("[", 10<<20)} {
		if _, err := compile(expression); err == nil || !strings.Contains(err.Error(), "more than 1000 classes") {
			t.Errorf("%d brackets: got %.80v", strings.Count(expression, "["), err)
		}
	}
	for _, r := range "\U000105c0\u0897" { // a letter and a mark of Unicode 16
		if !isWord(r) {
			t.Errorf("%U is not part of words", r)
		}
	}
	if from, _ := findDigit("a\U00010d40", 0); from != 1 {
		t.Error("a digit of Unicode 16 is not found")
	}
	// Characters that Unicode composes, but Python's tokenizers does not
	if text := "e\u0301\U00011935\U00011930e\u0301"; (nfc{}).normalize(text) != "é\U00011935\U00011930é" {
		t.Errorf("got %+q", (nfc{}).normalize(text))
	}
}

// TestLoop checks groups that are repeated at the end of a pattern.
func TestLoop(t *testing.T) {
	p, err := compile(exaoneWords)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"ab cd  e": 5, "a\u0301b c1": 6, " a b": 4, "1a": 1, "  a": 1} {
		if got := p.match(text, 0); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	long := strings.Repeat("a ", 4<<20) // without recursion
	if got := p.match(long, 0); got != len(long)-1 {
		t.Errorf("got %d", got)
	}
}
