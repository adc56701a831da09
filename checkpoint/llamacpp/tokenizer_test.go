package llamacpp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// smallTokenizer returns a small tokenizer.json.
func smallTokenizer(t *testing.T, edit func(map[string]any)) string {
	t.Helper()
	doc := map[string]any{
		"added_tokens": []any{map[string]any{"id": 5, "content": "<s>", "special": true}, map[string]any{"id": 7, "content": "<x>",
			"special": false}},
		"normalizer":    nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
		"model": map[string]any{"type": "BPE", "vocab": map[string]any{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4},
			"merges": []any{"a b", "Ġ ab"}},
	}
	if edit != nil {
		edit(doc)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func model(doc map[string]any) map[string]any { return doc["model"].(map[string]any) }

func TestBytePairs(t *testing.T) {
	config := with(t, `{"vocab_size": 10}`)
	post := func(doc map[string]any) {
		doc["post_processor"] = map[string]any{"type": "Sequence", "processors": []any{map[string]any{"type": "ByteLevel"},
			map[string]any{"type": "TemplateProcessing", "single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>"}},
				map[string]any{"Sequence": map[string]any{"id": "A"}}}}}}
		model(doc)["merges"] = []any{[]string{"a", "b"}, []string{"Ġ", "ab"}}
	}
	for _, edit := range []func(map[string]any){nil, post} {
		m := describe(t, map[string]string{"config.json": config, "tokenizer.json": smallTokenizer(t, edit),
			"tokenizer_config.json": `{"bos_token": {"content": "<s>"}, "eos_token": "<x>", "pad_token": null,
			"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`})
		want := map[string]any{
			"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
			"tokenizer.ggml.tokens":     []string{"a", "b", "ab", "Ġ", "Ġab", "<s>", "[PAD6]", "<x>", "[PAD8]", "[PAD9]"},
			"tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 1, 3, 5, 4, 5, 5}, "tokenizer.ggml.merges": []string{"a b", "Ġ ab"},
			"tokenizer.ggml.bos_token_id": uint32(5), "tokenizer.ggml.eos_token_id": uint32(7), "tokenizer.ggml.padding_token_id": nil,
			"tokenizer.ggml.scores":   nil,
			"tokenizer.chat_template": "D", "tokenizer.ggml.add_bos_token": nil,
		}
		if edit != nil {
			want["tokenizer.ggml.add_bos_token"], want["tokenizer.ggml.add_eos_token"] = true, false
		}
		expect(t, pairs(t, m), want)
	}
	m := describe(t, map[string]string{"config.json": config, "tokenizer.json": smallTokenizer(t, nil),
		"tokenizer_config.json": `{"add_bos_token": false, "chat_template": "C"}`, "chat_template.jinja": "J"})
	expect(t, pairs(t, m), map[string]any{"tokenizer.ggml.bos_token_id": uint32(0), "tokenizer.ggml.eos_token_id": uint32(1),
		"tokenizer.ggml.add_bos_token": false, "tokenizer.chat_template": "J"})
}

func TestPreTokenizers(t *testing.T) {
	split := func(regexes ...string) map[string]any {
		var steps []any
		for _, regex := range regexes {
			steps = append(steps, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated",
				"invert": false})
		}
		steps = append(steps, map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
		return map[string]any{"type": "Sequence", "pretokenizers": steps}
	}
	// The texts are those of the tokenizers that Meta, Qwen, Hugging Face, Mistral and DeepSeek publish. DeepSeek's
	// has line ends where the others have escapes.
	for want, pre := range map[string]map[string]any{
		"llama-bpe": split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`),
		"dbrx":      split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`),
		"qwen2":     split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`),
		"tekken": split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|` +
			`\s+(?!\S)|\s+`),
		"gpt-4o": split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ` +
			`?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`),
		"deepseek-v3": split(`\p{N}{1,3}`, "[一-龥\u3040-ゟ゠-ヿ]+",
			"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "+
				"?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
		"smollm": {"type": "Sequence", "pretokenizers": []any{map[string]any{"type": "Digits", "individual_digits": true},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}},
	} {
		m := describe(t, map[string]string{"config.json": config1B, "tokenizer.json": smallTokenizer(t, func(doc map[string]any) {
			doc["pre_tokenizer"] = pre
			doc["normalizer"] = map[string]any{"type": "NFC"}
			if model, ok := doc["model"].(map[string]any); ok {
				model["ignore_merges"] = want == "llama-bpe" || want == "tekken"
			}
		})})
		expect(t, pairs(t, m), map[string]any{"tokenizer.ggml.pre": want})
	}
}

func TestCharacterPairs(t *testing.T) {
	m := describe(t, map[string]string{"config.json": config1B, "tokenizer_config.json": `{"bos_token": "<s>"}`,
		"tokenizer.json": smallTokenizer(t, func(doc map[string]any) {
			doc["pre_tokenizer"] = nil
			doc["added_tokens"] = []any{}
			doc["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Prepend", "prepend": "▁"},
				map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"}}}
			vocab := map[string]any{"<unk>": 0, "<s>": 1}
			for b := range 256 {
				vocab[fmt.Sprintf("<0x%02X>", b)] = 2 + b
			}
			for i, token := range []string{"▁a", "ab", "▁ab", "a", "b", "▁"} {
				vocab[token] = 258 + i
			}
			doc["model"] = map[string]any{"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": vocab,
				"merges": []any{"▁ a", "a b", "▁a b", "▁ ab"}}
		})})
	got := pairs(t, m)
	expect(t, got, map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.add_space_prefix": true,
		"tokenizer.ggml.merges":           nil,
		"tokenizer.ggml.unknown_token_id": uint32(0), "tokenizer.ggml.bos_token_id": uint32(1)})
	types, scores := got["tokenizer.ggml.token_type"].([]int32), got["tokenizer.ggml.scores"].([]float32)
	if types[0] != 2 || types[2] != 6 || types[257] != 6 || types[258] != 1 || types[299] != 5 || len(types) != 300 || len(scores) != 300 {
		t.Errorf("types %v of %d, %d scores", types, len(types), len(scores))
	}
	if scores[258] != 0 || scores[259] != -1 || scores[260] != -2 || scores[261] >= -2 {
		t.Errorf("scores of merges %v", scores[258:264])
	}
}

func TestByteVocabulary(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		first int
	}{
		"ours": {map[string]string{"config.json": with(t, `{"vocab_size": 256, "microscale": {"vocabulary": "bytes"}, "bos_token_id": null, `+
			`"eos_token_id": null}`)}, 0},
		"byt5": {map[string]string{"config.json": with(t, `{"vocab_size": 384}`),
			"tokenizer_config.json": `{"tokenizer_class": "ByT5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>"}`}, 3},
		"exact": {map[string]string{"config.json": with(t, `{"vocab_size": 259}`),
			"tokenizer_config.json": `{"tokenizer_class": "ByT5Tokenizer"}`}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := pairs(t, describe(t, tc.files))
			tokens := got["tokenizer.ggml.tokens"].([]string)
			expect(t, got, map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": []string{},
				"tokenizer.ggml.add_bos_token": false})
			seen := map[string]bool{}
			for b := range 256 {
				token := tokens[tc.first+b]
				if seen[token] || len([]rune(token)) != 1 {
					t.Errorf("byte %d is %q, which is another's or not one character", b, token)
				}
				seen[token] = true
			}
			for b, want := range map[byte]string{' ': "Ġ", '\n': "Ċ", 'A': "A", 0: "Ā", 0x7f: "ġ", 0xa0: "ł", 0xad: "Ń", 0xff: "ÿ"} {
				if got := tokens[tc.first+int(b)]; got != want {
					t.Errorf("byte %#x is %q, want %q", b, got, want)
				}
			}
			if name == "ours" {
				expect(t, got, map[string]any{"tokenizer.ggml.bos_token_id": uint32(0), "tokenizer.ggml.eos_token_id": uint32(0)})
			}
			if name == "byt5" {
				expect(t, got, map[string]any{"tokenizer.ggml.eos_token_id": uint32(1), "tokenizer.ggml.unknown_token_id": uint32(2)})
			}
		})
	}
}

func TestRejectedTokenizers(t *testing.T) {
	edited := func(edit func(doc map[string]any)) map[string]string {
		return map[string]string{"tokenizer.json": smallTokenizer(t, edit)}
	}
	for want, files := range map[string]map[string]string{
		"tokenizer.json: parse it":               {"tokenizer.json": "{"},
		"parse tokenizer_config.json":            {"tokenizer_config.json": "["},
		"its tokenizer is not in tokenizer.json": {"tokenizer.model": "x"},
		`of type "Unigram" is not written`:       edited(func(doc map[string]any) { model(doc)["type"] = "Unigram" }),
		"marks the ends of words":                edited(func(doc map[string]any) { model(doc)["end_of_word_suffix"] = "</w>" }),
		"parse the merges":                       edited(func(doc map[string]any) { model(doc)["merges"] = "x" }),
		`the merge "ab" is not two parts`:        edited(func(doc map[string]any) { model(doc)["merges"] = []any{"ab"} }),
		`the merge "a b c" is not two parts`:     edited(func(doc map[string]any) { model(doc)["merges"] = []any{[]string{"a", "b c"}} }),
		"the number 1 of token":                  edited(func(doc map[string]any) { model(doc)["vocab"] = map[string]any{"a": 1, "b": 1} }),
		"the number -1 of token":                 edited(func(doc map[string]any) { model(doc)["vocab"] = map[string]any{"a": -1} }),
		"the number 9223372036854775807 of tok": edited(func(doc map[string]any) {
			model(doc)["vocab"] = map[string]any{"a": json.Number("9223372036854775807")}
		}),
		"the number 9223372036854775807 of add": edited(func(doc map[string]any) {
			doc["added_tokens"] = []any{map[string]any{"id": json.Number("9223372036854775807"), "content": "x"}}
		}),
		"a token has the number 999999999": edited(func(doc map[string]any) { model(doc)["vocab"] = map[string]any{"a": 999999999} }),
		"added token": edited(func(doc map[string]any) {
			doc["added_tokens"] = []any{map[string]any{"id": 0,
				"content": "x"}}
		}),
		"llama.cpp is not known to split text in this way: ByteLevel with regex with prefix": edited(func(doc map[string]any) {
			doc["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": true}
		}),
		"to split text in this way: " +
			"Whitespace": edited(func(doc map[string]any) { doc["pre_tokenizer"] = map[string]any{"type": "Whitespace"} }),
		"does not run its normalizer (Lowercase)":   edited(func(doc map[string]any) { doc["normalizer"] = map[string]any{"type": "Lowercase"} }),
		"more than write spaces as ▁ is not recogn": edited(func(doc map[string]any) { model(doc)["byte_fallback"] = true }),
		"without a token for byte 0": edited(func(doc map[string]any) {
			model(doc)["byte_fallback"], doc["pre_tokenizer"] = true, map[string]any{"type": "Metaspace", "replacement": "▁",
				"prepend_scheme": "first"}
		}),
	} {
		all := map[string]string{"config.json": config1B}
		for name, text := range files {
			all[name] = text
		}
		if _, err := Describe(open(t, all)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("says %v, want %q in it", err, want)
		}
	}
	small := map[string]string{"config.json": with(t, `{"vocab_size": 3}`), "tokenizer.json": smallTokenizer(t, nil)}
	if _, err := Describe(open(t, small)); err == nil || !strings.Contains(err.Error(), "8 tokens and the model 3") {
		t.Errorf("says %v", err)
	}
	few := map[string]string{"config.json": with(t, `{"vocab_size": 255, "microscale": {"vocabulary": "bytes"}}`)}
	if _, err := Describe(open(t, few)); err == nil || !strings.Contains(err.Error(), "vocab_size is 255, want 256") {
		t.Errorf("says %v", err)
	}
}
