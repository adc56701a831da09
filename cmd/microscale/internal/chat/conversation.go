package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/generation"
)

// ErrNoTemplate is the error of a conversation with a model that has no chat template.
var ErrNoTemplate = errors.New("the model has no chat template: ask for a completion instead")

// Conversation returns the tokens of messages, up to the beginning of the answer of the model with the text t.
func Conversation(ctx context.Context, t generation.Text, messages []Message) ([]int32, error) {
	if t.Template == "" {
		return nil, ErrNoTemplate
	}
	text, err := Render(ctx, t.Template, roles(t.Template, messages), Options{AddGenerationPrompt: true, BOS: t.BOS, EOS: t.EOS,
		Special: t.Special})
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, fmt.Errorf("chat template: it writes nothing for %d messages", len(messages))
	}
	if err := t.CheckSize(text); err != nil {
		return nil, err
	}
	return t.Encode(text), nil // the template writes BOS itself
}

// rendered is the number of conversations that one process renders.
const rendered = 64

// Texts writes whole conversations, as a model with the text t was trained on them.
func Texts(ctx context.Context, t generation.Text, conversations [][]Message) (texts []string, err error) {
	if t.Template == "" {
		return nil, errors.New("the model has no chat template, which conversations need")
	}
	o := Options{BOS: t.BOS, EOS: t.EOS, Special: t.Special}
	for part := range slices.Chunk(conversations, rendered) {
		named := make([][]Message, len(part))
		for i, messages := range part {
			named[i] = roles(t.Template, messages)
		}
		more, err := RenderEach(ctx, t.Template, named, o)
		if err != nil {
			return nil, err
		}
		texts = append(texts, more...)
	}
	return texts, nil
}

// roles returns the messages with the role system instead of developer, its newer name in OpenAI's API, if the
// template does not have that.
func roles(template string, messages []Message) []Message {
	const developer = "developer"
	if strings.Contains(template, developer) {
		return messages
	}
	messages = slices.Clone(messages)
	for i := range messages {
		if messages[i].Role == developer {
			messages[i].Role = "system"
		}
	}
	return messages
}
