// Package chat writes conversations as the text that a model was trained on, by the template
// that comes with it: Jinja, as transformers runs it.
package chat

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/microscale-go/microscale/jinja"
)

// A Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, …
	Content string
	Fields  []Field // further ones that a template may read, such as reasoning_content
}

// A Field is a member of a message.
type Field struct {
	Name string
	JSON []byte // its value
}

// value returns the message as templates read it.
func (m Message) value() (*jinja.Dict, error) {
	members := []any{"role", m.Role, "content", m.Content}
	for _, f := range m.Fields {
		value, err := jinja.ParseJSON(f.JSON)
		if err != nil {
			return nil, fmt.Errorf("field %.60q of a message: %w", f.Name, err)
		}
		members = append(members, f.Name, value)
	}
	return jinja.NewDict(members...), nil
}

// Options are the values that a template reads besides the messages.
type Options struct {
	AddGenerationPrompt bool              // end with the beginning of the model's answer
	BOS, EOS            string            // tokens, as text
	Special             map[string]string // further tokens by name, such as unk_token
}

// Render writes a conversation. The text holds special tokens, and usually the one that begins a
// text: encode it without another.
//
// A template is a program by the author of the model, so Render runs it in a separate process. It
// returns a Rejection if the template cannot be read or rejects the messages, ErrRunaway if the
// process takes too much time or memory, the exit status if it fails otherwise, and the error of ctx
// if ctx ends first.
func Render(ctx context.Context, template string, messages []Message, o Options) (string, error) {
	texts, err := RenderEach(ctx, template, [][]Message{messages}, o)
	if err != nil {
		return "", err
	}
	return texts[0], nil
}

// RenderEach is Render for several conversations, with as much time and memory for all of them.
func RenderEach(ctx context.Context, template string, conversations [][]Message, o Options) ([]string, error) {
	r, err := job{Template: template, Conversations: conversations, Options: o}.run(ctx, maxTime)
	switch {
	case err != nil:
		return nil, fmt.Errorf("chat template: %w", err)
	case r.Problem != "":
		return nil, &Rejection{r.Problem}
	case len(r.Texts) != len(conversations):
		return nil, fmt.Errorf("chat template: got %d texts of %d conversations", len(r.Texts), len(conversations))
	}
	return r.Texts, nil
}

// A Rejection is the error of a template that cannot be read, or that rejects messages.
type Rejection struct{ Problem string } // one line

func (r *Rejection) Error() string { return "chat template: " + r.Problem }

// render runs the template in this process.
func (j job) render() (r result) {
	defer func() {
		if p := recover(); p != nil { // such as a text longer than memory
			r = result{Problem: oneLine(fmt.Sprint(p))}
		}
	}()
	compiled, err := jinja.Compile(j.Template)
	if err != nil {
		return result{Problem: oneLine(err.Error())}
	}
	total := 0
	for i, messages := range j.Conversations {
		text, err := j.text(compiled, messages)
		if err != nil {
			return result{Problem: j.which(i) + oneLine(err.Error())}
		}
		if total += len(text); total > maxText {
			return result{Problem: fmt.Sprintf("the conversation is a text of %d bytes, want at most %d", total, maxText)}
		}
		r.Texts = append(r.Texts, text)
	}
	return r
}

// which names one of several conversations, as the begin of a message.
func (j job) which(i int) string {
	if len(j.Conversations) == 1 {
		return ""
	}
	return fmt.Sprintf("conversation %d of %d: ", i+1, len(j.Conversations))
}

func (j job) text(compiled *jinja.Template, conversation []Message) (string, error) {
	messages := make([]any, len(conversation))
	for i, m := range conversation {
		value, err := m.value()
		if err != nil {
			return "", err
		}
		messages[i] = value
	}
	variables := map[string]any{}
	for name, token := range j.Options.Special {
		variables[name] = token
	}
	maps.Copy(variables, map[string]any{
		"messages":              messages,
		"add_generation_prompt": j.Options.AddGenerationPrompt,
		"bos_token":             j.Options.BOS,
		"eos_token":             j.Options.EOS,
		"tools":                 nil,
		"documents":             nil,
	})
	return compiled.Render(variables)
}

// oneLine keeps a problem, which may quote the template, to one line.
func oneLine(problem string) string {
	const maxBytes = 300
	text := strings.Join(strings.Fields(problem), " ")
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "…"
	}
	return text
}
