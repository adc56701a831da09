package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// byteLevelMetadata is the vocabulary of a small GGUF file: all bytes, a few merges, two added tokens.
func byteLevelMetadata(change func(m map[string]any)) func(key string) any {
	m := map[string]any{"model": "gpt2", "pre": "gpt-2", "bos_token_id": uint32(0), "eos_token_id": uint32(1), "add_bos_token": true}
	tokens, types := []string{"<|end|>", "<tool>"}, []int32{controlType, userDefinedType}
	merges := []string{"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "1 2", "Ã ©"}
	for _, r := range byteRunes {
		tokens = append(tokens, string(r))
	}
	for _, merge := range merges {
		tokens = append(tokens, strings.ReplaceAll(merge, " ", ""))
	}
	tokens = append(tokens, "&<>\"\\\u2028", "he") // the last stands twice
	for len(types) < len(tokens) {
		types = append(types, 1)
	}
	m["tokens"], m["token_type"], m["merges"] = tokens, types, merges
	return changed(m, change)
}

// sentencePieceMetadata is the vocabulary of a small GGUF file of the kind of Llama 2.
func sentencePieceMetadata(change func(m map[string]any)) func(key string) any {
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{unknownType, controlType, controlType}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	for _, token := range []string{"▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "▁w", "w", "▁▁", "é"} {
		tokens, types = append(tokens, token), append(types, 1)
	}
	scores := make([]float32, len(tokens))
	for i := range scores {
		scores[i] = -float32(i)
	}
	return changed(map[string]any{"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "bos_token_id": uint32(1),
		"eos_token_id": uint32(2)}, change)
}

func changed(m map[string]any, change func(m map[string]any)) func(key string) any {
	if change != nil {
		change(m)
	}
	return func(key string) any { return m[strings.TrimPrefix(key, "tokenizer.ggml.")] }
}

// TestGGUFToJSON compares the tokenizer.json of GGUF metadata with the tokenizer that is read from them,
// for every pre-tokenizer.
func TestGGUFToJSON(t *testing.T) {
	cases := map[string]func(key string) any{
		"llama": sentencePieceMetadata(nil),
		"llama without a space": sentencePieceMetadata(func(m map[string]any) {
			m["add_space_prefix"], m["add_bos_token"], m["add_eos_token"] = false, false, true
		}),
		"without BOS": byteLevelMetadata(func(m map[string]any) { delete(m, "add_bos_token") }),
		"both ends":   byteLevelMetadata(func(m map[string]any) { m["add_eos_token"] = true }),
	}
	for pre := range preTokenizers {
		cases[pre] = byteLevelMetadata(func(m map[string]any) { m["pre"] = pre })
	}
	texts := []string{"", " ", "hello world", " hello  hello", "he<|end|>llo<tool> 12 1", "I'll\n\n\twe'RE 1234567 ½", "é e\u0301 é\u00e9",
		"<s>hello</s><unk>", "日本語 🤷🏽 \u2028&<>\"\\", "HTTPServer/2\r\n", "▁▁ ▁hello"}
	for name, value := range cases {
		want, err := FromGGUF(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := GGUFToJSON(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := mustParse(t, data)
		for _, text := range texts {
			for _, o := range []Options{{}, {AddSpecial: true}, {Literal: true}} {
				ids := want.Encode(text, o)
				if !slices.Equal(got.Encode(text, o), ids) {
					t.Errorf("%s: %q, %+v: got %v, want %v", name, text, o, got.Encode(text, o), ids)
				}
				a, err1 := want.Decode(ids, false)
				if b, err2 := got.Decode(ids, false); a != b || err1 != nil || err2 != nil {
					t.Errorf("%s: decode %v: got %q, want %q (%v, %v)", name, ids, b, a, err1, err2)
				}
			}
		}
	}
}

// TestGGUFToJSONFields has the fields that Python's tokenizers requires of each step.
func TestGGUFToJSONFields(t *testing.T) {
	for name, c := range map[string]struct {
		value func(key string) any
		want  string
	}{
		"llama-bpe": {byteLevelMetadata(func(m map[string]any) { m["pre"] = "llama-bpe"; delete(m, "add_bos_token") }),
			`{"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":{"type":"TemplateProcessing",
			"single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A",
			"type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
			"special_tokens":{"<|end|>":{"id":"<|end|>","ids":[0],"tokens":["<|end|>"]}}},"decoder":{"type":"ByteLevel","add_prefix_space":false,
			"trim_offsets":true,"use_regex":true}}`},
		"smollm": {byteLevelMetadata(func(m map[string]any) { m["pre"], m["add_bos_token"] = "smollm", false }),
			`{"post_processor":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
			{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}}`},
		"qwen2": {byteLevelMetadata(func(m map[string]any) { m["pre"] = "qwen2" }), `{"normalizer":{"type":"NFC"}}`},
		"llama": {sentencePieceMetadata(nil),
			`{"pre_tokenizer":null,"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace",
				"pattern":{"String":" "},"content":"▁"}]},
			"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},
			"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}}`},
	} {
		data, err := GGUFToJSON(c.value)
		if err != nil {
			t.Fatal(err)
		}
		var got, want map[string]any
		if json.Unmarshal(data, &got) != nil || json.Unmarshal([]byte(c.want), &want) != nil {
			t.Fatalf("%s: %s", name, data)
		}
		for key, value := range want {
			if fmt.Sprint(got[key]) != fmt.Sprint(value) {
				t.Errorf("%s: %s: got %v, want %v", name, key, got[key], value)
			}
		}
		m, _ := got["model"].(map[string]any)
		keys := slices.Sorted(maps.Keys(m))
		for _, key := range []string{"type", "vocab", "merges", "dropout", "continuing_subword_prefix", "end_of_word_suffix"} {
			if !slices.Contains(keys, key) {
				t.Errorf("%s: the model has no %s: %v", name, key, keys)
			}
		}
	}
}

// TestTypesGGUF reads lists of types that are not as long as the tokens: those beyond count for nothing, and an empty
// list is none.
func TestTypesGGUF(t *testing.T) {
	for name, metadata := range map[string]func(change func(m map[string]any)) func(key string) any{"gpt2": byteLevelMetadata,
		"llama": sentencePieceMetadata} {
		typed := func(types func(n int) []int32) func(key string) any {
			return metadata(func(m map[string]any) {
				tokens, _ := m["tokens"].([]string)
				if m["token_type"] = types(len(tokens)); types(0) == nil {
					delete(m, "token_type")
				}
			})
		}
		normal := func(n int) []int32 { return slices.Repeat([]int32{normalType}, n) }
		for _, c := range []struct{ types, like func(n int) []int32 }{
			{func(int) []int32 { return []int32{} }, func(int) []int32 { return nil }},
			{func(n int) []int32 { return append(normal(n), unknownType, controlType) }, normal},
		} {
			value := typed(c.types)
			got, err1 := GGUFToJSON(value)
			want, err2 := GGUFToJSON(typed(c.like))
			_, err3 := GGUFSpecial(value)
			if err := errors.Join(err1, err2, err3); err != nil || string(got) != string(want) {
				t.Errorf("%s, %d types: got %.80s (%v), want %.80s", name, len(c.types(0)), got, err, want)
			}
		}
	}
}

// TestTokenText keeps the space of a token that begins a word, which Decode leaves out at the beginning of a text.
func TestTokenText(t *testing.T) {
	p, err := FromGGUF(sentencePieceMetadata(nil))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"▁hello": " hello", "hello": "hello", "▁▁": "  ", "<s>": "<s>", "<0xC3>": "\ufffd",
		"<0x41>": "A"} {
		id, ok := p.ID(token)
		if got, err := p.TokenText(id); !ok || err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", token, got, err, want)
		}
	}
	if _, err := p.TokenText(1e6); err == nil {
		t.Error("got no error for a token beyond the vocabulary")
	}
}

// TestBrokenGGUF reports what is wrong with metadata, in one line.
func TestBrokenGGUF(t *testing.T) {
	for _, c := range []struct {
		value func(key string) any
		want  string
	}{
		{byteLevelMetadata(func(m map[string]any) { delete(m, "merges") }), "tokenizer.ggml.merges is missing"},
		{byteLevelMetadata(func(m map[string]any) { delete(m, "tokens") }), "tokenizer.ggml.tokens is missing"},
		{byteLevelMetadata(func(m map[string]any) { m["token_type"] = []int32{1} }), "got 1 types for 268 tokens"},
		{byteLevelMetadata(func(m map[string]any) { m["merges"] = []string{"x y"} }), `merge 0, "x" and "y": not in the vocabulary`},
		{byteLevelMetadata(func(m map[string]any) { m["merges"] = []string{"xy"} }), `merge "xy" is not a pair`},
		{byteLevelMetadata(func(m map[string]any) { m["merges"] = "h e" }), "tokenizer.ggml.merges has the unexpected type string"},
		{byteLevelMetadata(func(m map[string]any) { m["pre"] = "odd" }), `pre-tokenizer "odd" is not known: want one of a.x-4.0`},
		{byteLevelMetadata(func(m map[string]any) { m["pre"], m["bos_token_id"] = "glm4", uint32(1e6) }), "adds a token that it does not name"},
		{byteLevelMetadata(func(m map[string]any) { delete(m, "model") }), "tokenizer.ggml.model is missing"},
		{byteLevelMetadata(func(m map[string]any) { m["model"] = "bert" }), `model "bert" is not supported: want gpt2, llama or gemma4`},
		{sentencePieceMetadata(func(m map[string]any) { m["scores"] = []float32{1} }), "got 1 scores for 273 tokens"},
		{byteLevelMetadata(func(m map[string]any) {
			tokens, _ := m["tokens"].([]string)
			tokens[len(tokens)-2] = "\xff"
		}), `token 266, "\xff", is not UTF-8`},
	} {
		if _, err := GGUFToJSON(c.value); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
