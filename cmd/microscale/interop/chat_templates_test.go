package interop

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
)

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
		{{Role: "system", Content: " spaces "}, {Role: "user", Content: "a"}, {Role: "assistant", Content: "<think>\nhm\n</think>\n\nb"},
			{Role: "user", Content: "ü 日本"}},
		{{Role: "assistant", Content: "I begin"}, {Role: "user", Content: "no"}},
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	lists := make([][]message, len(conversations))
	for i, c := range conversations {
		for _, m := range c {
			lists[i] = append(lists[i], message{m.Role, m.Content})
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
		if differs != "" || stricter != "" {
			t.Errorf("%s: %.600s%.600s", name, differs, stricter)
		}
	}
	t.Logf("%d templates: %d texts are the same, both reject %d", len(want), same, rejected)
	if same < 100 {
		t.Errorf("only %d texts were compared", same)
	}
}

// TestChatConstructs compares the expected texts of package jinja's tests with what Jinja2 writes, so
// that those tests compare this module with Jinja2 where Python is missing.
func TestChatConstructs(t *testing.T) {
	interpreter := python(t, "jinja2==3.1.6")
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "jinja", "testdata", "constructs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Messages   json.RawMessage
		Constructs []struct {
			Template string
			Text     *string
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var templates []string
	for _, c := range list.Constructs {
		templates = append(templates, c.Template)
	}
	dir := t.TempDir()
	in, conversations, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "conversations.json"), filepath.Join(dir, "out.json")
	data, err = json.Marshal(templates)
	err = errors.Join(err, os.WriteFile(in, data, 0o644), os.WriteFile(conversations, []byte("["+string(list.Messages)+"]"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	script(t, interpreter, "chat_templates.py", in, conversations, out)
	if data, err = os.ReadFile(out); err != nil {
		t.Fatal(err)
	}
	var want map[int][]*string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	for i, c := range list.Constructs {
		if w := want[i]; len(w) != 1 || (w[0] == nil) != (c.Text == nil) || c.Text != nil && *w[0] != *c.Text {
			t.Errorf("%s: Jinja2 writes another text than constructs.json has", c.Template)
		}
	}
	if len(list.Constructs) < 200 {
		t.Errorf("only %d constructs were compared", len(list.Constructs))
	}
}
