package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
)

// request is the body of both endpoints: parameters of OpenAI's API, and top_k, min_p and
// repeat_penalty of other servers.
type request struct {
	Model string `json:"model"` // empty: the served one

	Messages []message `json:"messages"`
	Prompt   *texts    `json:"prompt"`

	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	TopK                *int     `json:"top_k"`
	TopP                *float64 `json:"top_p"`
	MinP                *float64 `json:"min_p"`
	RepeatPenalty       *float64 `json:"repeat_penalty"`
	Seed                *int64   `json:"seed"`
	Stop                texts    `json:"stop"`

	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	unknown []string // fields that neither this server nor OpenAI's API has
}

// readRequest reads the body of a request.
func readRequest(w http.ResponseWriter, r *http.Request) (q request, err error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(readTime)) // not all writers have one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{}) // what is read later is only the end of the connection
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return q, &apiError{status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	}
	if err != nil {
		return q, badRequest("", "the request was not received: %v", err)
	}
	if !utf8.Valid(body) {
		return q, badRequest("", "the request is not UTF-8")
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal(body, &members)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return q, badRequest("", "the request is not a JSON object, but of type %s", e.Value)
	}
	if err != nil {
		return q, badRequest("", "the request is not a JSON object: %v", err)
	}
	if q.unknown, err = checkFields(members); err != nil {
		return q, err
	}
	// Without the other fields: the decoder would also take their names in another case.
	if body, err = json.Marshal(members); err != nil {
		return q, err
	}
	err = json.Unmarshal(body, &q)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		err = badRequest(e.Field, "%s: unexpected %s", e.Field, e.Value)
	}
	return q, err
}

// generation returns the request to the model, without its prompt.
func (q *request) generation(c Config, seed uint64) (r generation.Request, err error) {
	r = generation.Request{MaxTokens: c.MaxTokens, Stop: q.Stop, Sampling: c.Sampling}
	r.Sampling.Seed = seed
	limit, name := q.MaxCompletionTokens, "max_completion_tokens"
	if limit == nil {
		limit, name = q.MaxTokens, "max_tokens"
	}
	if limit != nil {
		if *limit < 1 {
			return r, badRequest(name, "%s is %d, want at least 1", name, *limit)
		}
		if r.MaxTokens == 0 || *limit < r.MaxTokens {
			r.MaxTokens = *limit
		}
	}
	set(&r.Sampling.Temperature, q.Temperature)
	set(&r.Sampling.TopK, q.TopK)
	set(&r.Sampling.TopP, q.TopP)
	set(&r.Sampling.MinP, q.MinP)
	set(&r.Sampling.RepeatPenalty, q.RepeatPenalty)
	if q.Seed != nil {
		r.Sampling.Seed = uint64(*q.Seed)
	}
	const mostStops = 64
	if len(q.Stop) > mostStops || slices.Contains(q.Stop, "") {
		return r, badRequest("stop", "stop has %d strings, want at most %d, none of them empty", len(q.Stop), mostStops)
	}
	err = r.Sampling.Validate()
	if e := (*sampling.OutOfRange)(nil); errors.As(err, &e) {
		name := strings.NewReplacer("-", "_", " ", "_").Replace(e.Name)
		err = badRequest(name, "%s is %.10g, want %.10g to %.10g", name, e.Value, e.Low, e.High)
	}
	return r, err
}

func set[T any](dst *T, given *T) {
	if given != nil {
		*dst = *given
	}
}

// texts is a string or a list of strings.
type texts []string

// UnmarshalJSON reads a string as a list of one.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one *string
	if json.Unmarshal(data, &one) == nil {
		if one != nil {
			*t = texts{*one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// message is a message whose content is a text, or a list of parts.
type message struct {
	Role         string          `json:"role"`
	Content      *content        `json:"content"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	FunctionCall json.RawMessage `json:"function_call"`
}

// check returns an error for message i if it has no role or no text. Calls of tools are an error, because
// templates do not get them.
func (m *message) check(i int) error {
	switch {
	case m.Role == "":
		return badRequest("messages", "message %d has no role", i)
	case calls(m.ToolCalls), calls(m.FunctionCall):
		return badRequest("messages", "message %d has calls of tools, which are not supported: leave them out", i)
	case m.Content == nil:
		return badRequest("messages", "message %d has no content: want text", i)
	}
	return nil
}

// calls reports whether a member of a message has calls.
func calls(member json.RawMessage) bool {
	text := string(member)
	return text != "" && text != "null" && text != "[]"
}

type content string

// UnmarshalJSON joins the texts of a list of parts.
func (c *content) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(c)) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		if p.Type != "text" {
			return badRequest("messages", "content of type %.20q is not supported: want text", p.Type)
		}
		*c += content(p.Text)
	}
	return nil
}

// conversation returns the tokens of the messages.
func (q *request) conversation(ctx context.Context, t *generation.Text) ([]int32, error) {
	if len(q.Messages) == 0 {
		return nil, badRequest("messages", "messages is missing or empty")
	}
	list := make([]chat.Message, len(q.Messages))
	for i, m := range q.Messages {
		if err := m.check(i); err != nil {
			return nil, err
		}
		list[i] = chat.Message{Role: m.Role, Content: string(*m.Content)}
	}
	prompt, err := chat.Conversation(ctx, *t, list)
	if rejection := (*chat.Rejection)(nil); errors.As(err, &rejection) { // a template may reject an order of roles
		err = badRequest("messages", "%v", err)
	}
	return prompt, err
}

// text returns the tokens of the prompt.
func (q *request) text(t *generation.Text) ([]int32, error) {
	if q.Prompt == nil || len(*q.Prompt) != 1 {
		return nil, badRequest("prompt", "prompt is missing or has several texts: want one string")
	}
	return t.Completion((*q.Prompt)[0]), nil
}
