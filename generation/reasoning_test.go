package generation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/tokenizer"
)

// characters returns a text of single characters and special tokens, one id each in their order, of a SentencePiece
// vocabulary if spaces are words.
func characters(t *testing.T, template string, special []string, normal []string) Text {
	t.Helper()
	var vocabulary, added []string
	for i, token := range append(normal, strings.Split(" \n<>/[]|abcdefghijklmnopqrstuvwxyzTHINK.", "")...) {
		vocabulary = append(vocabulary, fmt.Sprintf("%q: %d", strings.NewReplacer(" ", "Ġ", "\n", "Ċ").Replace(token), i+len(special)))
	}
	for i, token := range special {
		added = append(added, fmt.Sprintf(`{"id": %d, "content": %q, "special": true}`, i, token))
	}
	tok, err := tokenizer.Parse([]byte(fmt.Sprintf(`{"model": {"type": "BPE", "vocab": {%s}, "merges": []}, "decoder": {"type": "ByteLevel"},
		"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [%s]}`, strings.Join(vocabulary, ", "),
		strings.Join(added, ", "))))
	if err != nil {
		t.Fatal(err)
	}
	return Text{Tokenizer: tok, Template: template}
}

// message returns the reasoning and the text of the message whose tokens follow a prompt.
func message(t *testing.T, text Text, prompt, answer string) string {
	t.Helper()
	a := Answer{model: &Model{Text: text}, stream: text.Tokenizer.Stream(true), separator: text.separator(text.Encode(prompt))}
	var reasoning, rest strings.Builder
	add := func(p Part) {
		reasoning.WriteString(p.Reasoning)
		rest.WriteString(p.Text)
	}
	for _, id := range text.Encode(answer) {
		p, err := a.decode(uint32(id))
		if err != nil {
			t.Fatal(err)
		}
		add(p)
	}
	add(a.end(Part{}, Stopped))
	return fmt.Sprintf("%q %q", reasoning.String(), rest.String())
}

// TestReasoning separates the reasoning of messages as the template and the vocabulary of a model declare it: with tags
// that are special tokens, tokens, or written in characters, and with channels.
func TestReasoning(t *testing.T) {
	const thinks, plain = "{{ c.split('</think>')[-1] }}", "{{ c }}"
	harmony := []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"}
	const call = "<|channel|>commentary to=f <|constrain|>json<|message|>call<|end|>"
	for _, c := range []struct {
		name, template  string
		special, normal []string
		prompt, answer  string
		want            string
	}{
		{"characters", thinks, nil, nil, "hi", "\n<think>\nwhy\n\n because </think>\n\nhi ", `"why\n\n because" "hi "`},
		{"one token", plain, nil, []string{"<think>", "</think>"}, "hi", "<think>why</think>hi", `"why" "hi"`},
		{"special", plain, []string{"[THINK]", "[/THINK]", "<s>"}, nil, "hi", "[THINK]why<s>not[/THINK]hi", `"whynot" "hi"`},
		{"special and text", plain, []string{"<|channel>", "<channel|>"}, nil, "hi", "<|channel>thought\nwhy<channel|>hi", `"why" "hi"`},
		{"begun by special and text", plain, []string{"<|channel>", "<channel|>"}, nil, "hi<|channel>thought\n", "why<channel|>hi", `"why" "hi"`},
		{"begun", thinks, nil, nil, "hi<think>\n", "why</think>hi", `"why" "hi"`},
		{"not begun by a user", thinks, nil, nil, "<think> is what", "why</think>hi", `"" "why</think>hi"`},
		{"ended by the template", thinks, nil, nil, "<think>\n\n</think>\n\n", "hi", `"" "hi"`},
		{"unfinished", thinks, nil, nil, "hi", "<think>why </th", `"why </th" ""`},
		{"unfinished tag", thinks, nil, nil, "hi", " <thi", `"" " <thi"`},
		{"no tag", thinks, nil, nil, "hi", " hi <think>why</think>", `"" " hi <think>why</think>"`},
		{"stray special end", plain, []string{"[THINK]", "[/THINK]"}, nil, "hi", "hi[/THINK] there", `"" "hi there"`},
		{"stray special beginning", plain, []string{"[THINK]", "[/THINK]"}, nil, "hi", "[THINK]why[/THINK]hi[THINK] there",
			`"why" "hi there"`},
		{"only a special end", plain, []string{"[THINK]", "[/THINK]"}, nil, "hi", "[/THINK]\n\nhi", `"" "hi"`},
		{"only an end", thinks, nil, nil, "hi", "</think>\n\nhi", `"" "hi"`},
		{"like an end", thinks, nil, nil, "hi", "</thin", `"" "</thin"`},
		{"empty", thinks, nil, nil, "hi", "<think>\n\n</think>\n\nhi", `"" "hi"`},
		{"not declared", plain, nil, nil, "hi", "<think>why</think>hi", `"" "<think>why</think>hi"`},
		{"channels", plain, harmony, nil, "hi<|start|>assistant",
			"<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>hi", `"why" "hi"`},
		{"more channels", plain, harmony, nil, "hi", "<|channel|>analysis<|message|>why<|end|><|start|>assistant" + call +
			"<|start|>assistant<|channel|>final<|message|>hi", `"why\n\ncall" "hi"`},
		{"no channel", plain, harmony, nil, "hi", "hi<|end|><|start|>assistant<|message|> there", `"" "hi there"`},
		{"channel without message token", plain, harmony[:2], nil, "hi", "<|channel|>hi", `"" "hi"`},
	} {
		if got := message(t, characters(t, c.template, c.special, c.normal), c.prompt, c.answer); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestReasoningStop checks that stop strings end the answer, not its reasoning, and that all of a message that ends
// within its reasoning is reasoning.
func TestReasoningStop(t *testing.T) {
	m := newModel(t)
	m.Text.Template = "</think>"
	r := Request{Prompt: m.Text.Encode("<think>"), MaxTokens: 40, Sampling: hot, Message: true}
	var reasoning string
	for _, stop := range [][]string{nil, {"e", "t", "a"}} {
		r.Stop = stop
		a, err := m.Begin(newContext(t, m, 200), r)
		if err != nil {
			t.Fatal(err)
		}
		var got Part
		if err := a.Write(t.Context(),
			func(p Part) error { got = Part{got.Reasoning + p.Reasoning, got.Text + p.Text}; return nil }); err != nil {
			t.Fatal(err)
		}
		if got.Text != "" || a.Tokens != 40 || len(got.Reasoning) < 20 {
			t.Errorf("stop %q: got %+v after %d tokens", stop, got, a.Tokens)
		}
		if reasoning == "" {
			reasoning = got.Reasoning
		}
		if got.Reasoning != reasoning {
			t.Errorf("stop %q: got %q, want %q", stop, got.Reasoning, reasoning)
		}
	}
}

// TestContinue checks that the space before the first word of SentencePiece is kept where the answer continues a text,
// and left out where it begins one.
func TestContinue(t *testing.T) {
	metadata := map[string]any{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>", "▁", "a", "▁a"},
		"tokenizer.ggml.token_type": []int32{2, 3, 3, 1, 1, 1},
	}
	p, err := tokenizer.FromGGUF(func(key string) any { return metadata[key] })
	if err != nil {
		t.Fatal(err)
	}
	text := Text{Tokenizer: p}
	for _, c := range []struct {
		prompt []int32
		want   string
	}{{[]int32{1, 5}, " a"}, {[]int32{1, 5, 2}, " a"}, {[]int32{1}, "a"}, {nil, "a"}} {
		if got, err := text.Continue(c.prompt).Next(5); got != c.want || err != nil {
			t.Errorf("%v: got %q, %v, want %q", c.prompt, got, err, c.want)
		}
	}
}

// TestPublishedTemplates separates the answers of models with the tags that their published chat templates have. Prompts
// end as these templates end them (llama.cpp's models/templates, of llama-cpp-python 0.3.36).
func TestPublishedTemplates(t *testing.T) {
	think := []string{"<think>", "</think>"}
	for model, c := range map[string]struct {
		special        []string
		tags           []string // of the template, written in characters
		prompt, answer string
	}{
		"Qwen3":            {[]string{"<|im_end|>"}, think, "<|im_end|>\nassistant\n", "<think>\nwhy\n</think>\n\nhi"},
		"Qwen3.5":          {[]string{"<|im_end|>"}, think, "<|im_end|>\nassistant\n<think>\n", "why\n</think>\n\nhi"},
		"R1 Distill Llama": {nil, think, "<think>\n", "why\n</think>\n\nhi"},
		"GLM-4.6":          {[]string{"<|assistant|>"}, think, "hi<|assistant|>", "\n<think>why</think>\nhi"},
		"GLM-4.7":          {[]string{"<|assistant|>"}, think, "hi<|assistant|><think>", "why</think>hi"},
		"Kimi K2 Thinking": {append([]string{"<|im_middle|>"}, think...), nil, "assistant<|im_middle|>", "<think>why</think>hi"},
		"MiniMax M2":       {nil, think, "ai\n<think>\n", "why\n</think>\n\nhi"},
		"Magistral":        {[]string{"[INST]", "[/INST]", "[THINK]", "[/THINK]"}, nil, "[INST]hi[/INST]", "[THINK]why[/THINK]hi"},
		"Seed-OSS": {[]string{"<seed:bos>"}, []string{"<seed:think>", "</seed:think>"}, "<seed:bos>assistant\n",
			"<seed:think>\nwhy</seed:think>hi"},
		"Command": {[]string{"<|START_THINKING|>", "<|END_THINKING|>"}, nil, "<|START_THINKING|>",
			"why<|END_THINKING|>hi"},
		"Command, without": {[]string{"<|START_THINKING|>", "<|END_THINKING|>"}, nil, "<|START_THINKING|><|END_THINKING|>", "hi"},
		"DeepSeek V3.1":    {nil, think, "<think></think>", "hi"},
		"DeepSeek V4":      {nil, think, "</think>", "hi"},
		"Gemma 4":          {[]string{"<|channel>", "<channel|>"}, nil, "model\n", "<|channel>thought\nwhy<channel|>hi"},
		"Gemma 4, without": {[]string{"<|channel>", "<channel|>"}, nil, "model\n<|channel>thought\n<channel|>", "hi"},
		"Apertus": {[]string{"<|assistant_start|>", "<|inner_prefix|>", "<|inner_suffix|>"}, nil, "<|assistant_start|>",
			"<|inner_prefix|>why<|inner_suffix|>hi"},
		"Hunyuan 3": {[]string{"<think:opensource>", "</think:opensource>"}, nil, "<think:opensource>", "why</think:opensource>hi"},
		"Apriel": {nil, []string{"[BEGIN FINAL RESPONSE]"}, "Here are my reasoning steps:\n",
			"why\n[BEGIN FINAL RESPONSE]\nhi"},
		"gpt-oss": {[]string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>"}, nil, "<|end|><|start|>assistant",
			"<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>hi"},
	} {
		want := `"why" "hi"`
		if !strings.Contains(c.answer, "why") {
			want = `"" "hi"`
		}
		if got := message(t, characters(t, strings.Join(c.tags, " "), c.special, strings.Split(":ABCDEFGLMOPRSU", "")), c.prompt,
			c.answer); got != want {
			t.Errorf("%s: got %s, want %s", model, got, want)
		}
	}
}
