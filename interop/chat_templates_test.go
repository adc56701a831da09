package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/internal/chat"
)

// chatDifferences names the templates of llama.cpp's tests for which Jinja2 rejects
// conversations that this module accepts, and the reasons.
var chatDifferences = map[string]string{
	"LFM2.5-8B-A1B.jinja":                                 "{% generation %} is an extension of transformers, without effect on the text",
	"poolside-Laguna-S-2.1.jinja":                         "{% generation %} is an extension of transformers, without effect on the text",
	"poolside-Laguna-XS-2.1.jinja":                        "{% generation %} is an extension of transformers, without effect on the text",
	"poolside-Laguna-XS.2.jinja":                          "{% generation %} is an extension of transformers, without effect on the text",
	"CohereForAI-c4ai-command-r-plus-tool_use.jinja":      "none cannot be iterated in Jinja2: the template requires tools",
	"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja": "none cannot be iterated in Jinja2: the template requires tools",
	"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja":   "none cannot be iterated in Jinja2: the template requires tools",
	"fireworks-ai-llama-3-firefunction-v2.jinja":          "it requires functions, and undefined values are written here as nothing",
}

// TestChatTemplates compares conversations formatted by Jinja2 and by this module with the
// templates of llama.cpp's tests.
func TestChatTemplates(t *testing.T) {
	if !*vocabularies {
		skipf(t, "-vocabularies is not set")
	}
	conversations := [][]chat.Message{
		{{Role: "user", Content: "Hello"}},
		{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hello"}},
		{{Role: "user", Content: "Hello"}, {Role: "assistant", Content: "Hi there!"}, {Role: "user", Content: "1 < 2 & \"quotes\"\n  two lines"}},
		{{Role: "system", Content: " spaces "}, {Role: "user", Content: "a"}, {Role: "assistant", Content: "<think>\nhm\n</think>\n\nb"}, {Role: "user", Content: "ü 日本"}},
		{{Role: "assistant", Content: "I begin"}, {Role: "user", Content: "no"}},
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	lists := make([][]message, len(conversations))
	for i, c := range conversations {
		for _, m := range c {
			lists[i] = append(lists[i], message(m))
		}
	}
	data, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.json")
	if err := os.WriteFile(in, data, 0o644); err != nil {
		t.Fatal(err)
	}
	templates := llamaModels(t)
	script(t, python(t, "jinja2==3.1.6"), "chat_templates.py", templates, in, out)
	data, err = os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][]*string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	same, rejected := 0, 0
	for name, texts := range want {
		source, err := os.ReadFile(filepath.Join(templates, name))
		if err != nil {
			t.Fatal(err)
		}
		differs, stricter := "", ""
		for i, text := range texts {
			got, err := chat.Render(t.Context(), string(source), conversations[i], chat.Options{AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>"})
			switch {
			case text == nil && err != nil:
				rejected++
			case text == nil:
				stricter = "Jinja2 rejects a conversation, and we write " + got
			case err != nil:
				differs = err.Error()
			case got != *text:
				differs = "got " + got + "\nwant " + *text
			default:
				same++
			}
		}
		if _, known := chatDifferences[name]; differs != "" || known != (stricter != "") {
			t.Errorf("%s: known to differ: %t; differs: %.600s%.600s", name, known, differs, stricter)
		}
	}
	t.Logf("%d templates: %d texts are the same, both reject %d, %d templates differ", len(want), same, rejected, len(chatDifferences))
	if same < 100 {
		t.Errorf("only %d texts were compared", same)
	}
}
