package chat

import (
	"errors"
	"testing"

	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/tokenizer"
)

func TestConversation(t *testing.T) {
	text := generation.Text{Tokenizer: tokenizer.Bytes(), BOS: "<s>", Template: "{{ bos_token }}{% for m in messages %}{{ m.content }}{% " +
		"endfor %}a:"}
	hi := []Message{{Role: "user", Content: "Hi"}}
	got, err := Conversation(t.Context(), text, hi)
	bytes := make([]byte, len(got))
	for i, id := range got {
		bytes[i] = byte(id)
	}
	if string(bytes) != "<s>Hia:" || err != nil {
		t.Errorf("got %q, %v", bytes, err)
	}
	text.Template = "{# nothing #}"
	if _, err := Conversation(t.Context(), text, hi); err == nil {
		t.Error("template without text: got no error")
	}
	text.Template = ""
	if _, err := Conversation(t.Context(), text, hi); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("no template: got %v", err)
	}
}

// TestDeveloper checks that the role developer is system for templates that do not have it.
func TestDeveloper(t *testing.T) {
	for template, want := range map[string]string{"{{ messages[0].role }}": "system", "{# developer #}{{ messages[0].role }}": "developer"} {
		asked := []Message{{Role: "developer", Content: "a"}}
		if got := roles(template, asked)[0].Role; got != want || asked[0].Role != "developer" {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}
