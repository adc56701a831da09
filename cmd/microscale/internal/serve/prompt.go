package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/generation"
)

// maxPrompts is the number of prompts of a request.
const maxPrompts = 128

// A prompt is what an answer continues.
type prompt struct {
	tokens []int32
	text   string // for echo
}

// added returns the number of special tokens before those of the text.
func (p prompt) added(t *generation.Text) (n int) {
	for n < len(p.tokens) && t.Tokenizer.IsSpecial(uint32(p.tokens[n])) && !strings.HasPrefix(p.text, tokenText(t, p.tokens[n])) {
		n++
	}
	return n
}

// prompts is the value of the parameter prompt: a text, token ids, or a list of either.
type prompts struct {
	texts []string
	ids   [][]int32
}

// UnmarshalJSON reads one of the four forms.
func (p *prompts) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(data, &text) == nil {
		p.texts = []string{text}
		return nil
	}
	if texts, ok := listOf[string](data); ok {
		p.texts = texts
		return nil
	}
	if ids, ok := listOf[int32](data); ok {
		p.ids = [][]int32{ids}
		return nil
	}
	lists, ok := listOf[json.RawMessage](data)
	for _, list := range lists {
		ids, isList := listOf[int32](list)
		p.ids, ok = append(p.ids, ids), ok && isList
	}
	if !ok {
		return badRequest("prompt", "prompt: want a string, token ids, or a list of either")
	}
	return nil
}

// listOf returns the elements of a JSON list of which none is null, and reports whether it is one.
func listOf[T any](data []byte) (list []T, ok bool) {
	var elements []*T
	if json.Unmarshal(data, &elements) != nil || elements == nil || slices.Contains(elements, nil) {
		return nil, false
	}
	for _, e := range elements {
		list = append(list, *e)
	}
	return list, true
}

// completion returns the tokens of the prompts.
func (q *request) completion(ctx context.Context, t *generation.Text) (all []prompt, err error) {
	n := 0
	if q.Prompt != nil {
		n = len(q.Prompt.texts) + len(q.Prompt.ids)
	}
	switch {
	case n == 0:
		return nil, badRequest("prompt", "prompt is missing or empty")
	case n > maxPrompts:
		return nil, badRequest("prompt", "prompt has %d elements, want at most %d", n, maxPrompts)
	case n > 1 && q.Stream:
		return nil, badRequest("stream", "stream is not supported for several prompts")
	}
	for _, text := range q.Prompt.texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := t.CheckSize(text); err != nil {
			return nil, err
		}
		all = append(all, prompt{t.Completion(text), text})
	}
	for i, ids := range q.Prompt.ids {
		p, err := promptOf(i, ids, t)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// promptOf returns prompt i of token ids.
func promptOf(i int, ids []int32, t *generation.Text) (prompt, error) {
	unsigned := make([]uint32, len(ids))
	for k, id := range ids {
		if id < 0 || int(id) >= t.Tokenizer.Size() {
			return prompt{}, badRequest("prompt", "prompt %d has token %d, want 0 to %d", i, id, t.Tokenizer.Size()-1)
		}
		unsigned[k] = uint32(id)
	}
	if len(ids) == 0 {
		return prompt{}, badRequest("prompt", "prompt %d has no tokens", i)
	}
	text, err := t.Tokenizer.Decode(unsigned, false)
	return prompt{ids, text}, err
}

// conversation returns the tokens of the messages. It adds fields of messages that the template does not read to
// q.unknown.
func (q *request) conversation(ctx context.Context, t *generation.Text) ([]prompt, error) {
	if len(q.Messages) == 0 {
		return nil, badRequest("messages", "messages is missing or empty")
	}
	list := make([]chat.Message, len(q.Messages))
	for i, members := range q.Messages {
		m, unknown, err := messageOf(i, members)
		if err != nil {
			return nil, err
		}
		list[i] = m
		for _, f := range m.Fields {
			if !strings.Contains(t.Template, f.Name) {
				unknown = append(unknown, "messages."+f.Name)
			}
		}
		q.unknown = append(q.unknown, unknown...)
	}
	tokens, err := chat.Conversation(ctx, *t, list)
	if rejection := (*chat.Rejection)(nil); errors.As(err, &rejection) { // a template may reject an order of roles
		err = badRequest("messages", "%v", err)
	}
	return []prompt{{tokens: tokens}}, err
}

// messageOf returns message i. Fields that the server does not know are the template's.
func messageOf(i int, members map[string]json.RawMessage) (m chat.Message, unknown []string, err error) {
	names, err := messageFields.check(members)
	if err != nil {
		return m, nil, badRequest("messages", "message %d: %v", i, err)
	}
	for _, name := range names {
		m.Fields = append(m.Fields, chat.Field{Name: name, JSON: members[name]})
	}
	if json.Unmarshal(members["role"], &m.Role) != nil || m.Role == "" {
		return m, nil, badRequest("messages", "message %d has no role", i)
	}
	m.Content, unknown, err = contentOf(members["content"])
	if err != nil {
		return m, nil, badRequest("messages", "message %d: %v", i, err)
	}
	return m, unknown, nil
}

// contentOf returns the text of a message: a string, or a list of parts, which are lines as for vLLM and llama.cpp.
func contentOf(data json.RawMessage) (text string, unknown []string, err error) {
	if data == nil || string(data) == "null" {
		return "", nil, errors.New("it has no content: want text")
	}
	if json.Unmarshal(data, &text) == nil {
		return text, nil, nil
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(data, &parts) != nil {
		return "", nil, errors.New("content: want a text or a list of parts")
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		var kind string
		if json.Unmarshal(part["type"], &kind) != nil || kind != "text" {
			return "", nil, fmt.Errorf("content of type %.20q is not supported: want text", kind)
		}
		if json.Unmarshal(part["text"], &texts[i]) != nil {
			return "", nil, fmt.Errorf("part %d of the content has no text", i)
		}
		names, err := partFields.check(part)
		if err != nil {
			return "", nil, fmt.Errorf("part %d of the content: %w", i, err)
		}
		for _, name := range names {
			unknown = append(unknown, "messages.content."+name)
		}
	}
	return strings.Join(texts, "\n"), slices.Compact(unknown), nil
}
