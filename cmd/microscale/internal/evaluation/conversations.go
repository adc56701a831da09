package evaluation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
)

// A passage is a text, or a conversation that the chat template of a model writes.
type passage struct {
	text         string
	conversation []chat.Message // nil: text
}

// hasConversations reports whether a file has a conversation or a text a line, by the end of its name.
func hasConversations(name string) bool { return strings.EqualFold(filepath.Ext(name), ".jsonl") }

// readLines reads lines of JSON: {"messages": [{"role": "user", "content": "…"}, …]}, or {"text": "…"}. Of a file that is cut, the
// last line is dropped.
func readLines(data []byte, cut bool) (passages []passage, err error) {
	if cut {
		data = data[:bytes.LastIndexByte(data, '\n')+1]
	}
	number := 0
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark of some editors
	for line := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		p, err := readLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		passages = append(passages, p)
	}
	return passages, nil
}

func readLine(line []byte) (p passage, err error) {
	var fields struct {
		Messages []map[string]json.RawMessage
		Text     *string
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return p, errors.New("it is not a JSON object with messages or a text")
	}
	if fields.Text != nil && fields.Messages == nil {
		return passage{text: *fields.Text}, nil
	}
	if len(fields.Messages) == 0 {
		return p, errors.New(`it has neither "messages", of {"role": …, "content": …}, nor a "text"`)
	}
	for _, fields := range fields.Messages {
		var m chat.Message
		for name, target := range map[string]*string{"role": &m.Role, "content": &m.Content} {
			if json.Unmarshal(fields[name], target) != nil || fields[name] == nil {
				return p, fmt.Errorf("a message has no %s, or one that is not a text", name)
			}
		}
		p.conversation = append(p.conversation, m)
	}
	return p, nil
}
