package serve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/microscale-go/microscale/generation"
)

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// envelope is an answer or a part of one.
type envelope struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// An endpoint is the form of requests and answers.
type endpoint interface {
	prefix() string // of ids
	prompt(ctx context.Context, q *request, t *generation.Text) ([]int32, error)
	object(part bool) string
	whole(text string, f generation.Finish) any // the choice of an answer
	first() any                                 // the choice before the parts of an answer, or nil
	part(text string, f *generation.Finish) any // the choice of a part of an answer
}

type chatEndpoint struct{}

type chatChoice struct {
	Index   int                `json:"index"`
	Message *chatMessage       `json:"message,omitempty"`
	Delta   *chatMessage       `json:"delta,omitempty"`
	Finish  *generation.Finish `json:"finish_reason"`
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

func (chatEndpoint) prefix() string { return "chatcmpl-" }

func (chatEndpoint) prompt(ctx context.Context, q *request, t *generation.Text) ([]int32, error) {
	return q.conversation(ctx, t)
}

func (chatEndpoint) object(part bool) string {
	if part {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (chatEndpoint) whole(text string, f generation.Finish) any {
	return chatChoice{Message: &chatMessage{Role: "assistant", Content: &text}, Finish: &f}
}

func (chatEndpoint) first() any {
	empty := ""
	return chatChoice{Delta: &chatMessage{Role: "assistant", Content: &empty}}
}

func (chatEndpoint) part(text string, f *generation.Finish) any {
	c := chatChoice{Delta: &chatMessage{}, Finish: f}
	if text != "" {
		c.Delta.Content = &text
	}
	return c
}

type textEndpoint struct{}

type textChoice struct {
	Index    int                `json:"index"`
	Text     string             `json:"text"`
	Logprobs *int               `json:"logprobs"` // always null
	Finish   *generation.Finish `json:"finish_reason"`
}

func (textEndpoint) prefix() string { return "cmpl-" }

func (textEndpoint) prompt(_ context.Context, q *request, t *generation.Text) ([]int32, error) {
	return q.text(t)
}

func (textEndpoint) object(bool) string { return "text_completion" }

func (textEndpoint) whole(text string, f generation.Finish) any {
	return textChoice{Text: text, Finish: &f}
}

func (textEndpoint) first() any { return nil }

func (textEndpoint) part(text string, f *generation.Finish) any {
	return textChoice{Text: text, Finish: f}
}

// random returns random bits for ids and seeds.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// complete answers a request.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, e endpoint) {
	q, err := readRequest(w, r)
	if err != nil {
		writeError(w, asAPI(err))
		return
	}
	if q.Model != "" {
		if err := s.checkModel(q.Model); err != nil {
			writeError(w, err)
			return
		}
	}
	s.unknown.add(q.unknown)
	if err := s.pool.enter(); err != nil {
		writeError(w, asAPI(err))
		return
	}
	defer s.pool.leave()
	g, err := s.generation(r.Context(), &q, e)
	if err != nil {
		writeError(w, asAPI(err))
		return
	}
	c, err := s.pool.take(r.Context(), g.Prompt)
	if err != nil {
		writeError(w, asAPI(err))
		return
	}
	defer s.pool.put(c)
	a, err := s.model.Begin(c, g)
	if err != nil {
		writeError(w, asAPI(err))
		return
	}
	defer s.batch.leave(a)
	form := envelope{ID: e.prefix() + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, random())), Object: e.object(q.Stream), Created: time.Now().Unix(), Model: s.model.Name}
	if q.Stream {
		s.stream(w, r, e, form, a, q.StreamOptions.IncludeUsage)
	} else {
		s.answer(w, r, e, form, a)
	}
}

// generation returns the request to the model.
func (s *Server) generation(ctx context.Context, q *request, e endpoint) (g generation.Request, err error) {
	if g, err = q.generation(s.config, random()); err != nil {
		return g, err
	}
	if g.Prompt, err = e.prompt(ctx, q, &s.model.Text); err != nil {
		return g, err
	}
	if n := len(g.Prompt); n > s.config.Positions {
		err = &generation.PromptTooLong{Tokens: n, Positions: s.config.Positions}
	}
	return g, err
}

// begin waits for a turn, which end ends.
func (s *Server) begin(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) end() { <-s.turn }

// answer writes a whole answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, e endpoint, form envelope, a *generation.Answer) {
	var text strings.Builder
	for a.Finish == "" {
		part, err := s.step(r.Context(), a)
		if err != nil {
			writeError(w, asAPI(err))
			return
		}
		text.WriteString(part)
	}
	form.Choices, form.Usage = []any{e.whole(text.String(), a.Finish)}, usageOf(a)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
	writeJSON(w, form)
}

func usageOf(a *generation.Answer) *usage {
	return &usage{a.PromptTokens, a.Tokens, a.PromptTokens + a.Tokens}
}

// stream writes the parts of an answer as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, e endpoint, form envelope, a *generation.Answer, withUsage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	events := eventWriter{w: w, control: http.NewResponseController(w)}
	send := func(choices ...any) {
		form.Choices = append([]any{}, choices...) // an empty list, not null
		events.send(form)
	}
	if first := e.first(); first != nil {
		send(first)
	}
	for a.Finish == "" && events.err == nil {
		text, err := s.step(r.Context(), a)
		if err != nil {
			events.send(map[string]*apiError{"error": asAPI(err).typed()})
			return
		}
		if text != "" {
			send(e.part(text, nil))
		}
	}
	send(e.part("", &a.Finish))
	if withUsage {
		form.Usage = usageOf(a)
		send()
	}
	events.write("[DONE]")
}

// An eventWriter writes server-sent events. After the first error it writes nothing.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (e *eventWriter) send(document any) {
	data, err := json.Marshal(document)
	if err != nil {
		e.err = errors.Join(e.err, err)
		return
	}
	e.write(string(data))
}

func (e *eventWriter) write(data string) {
	if e.err != nil {
		return
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
	_, e.err = e.w.Write([]byte("data: " + data + "\n\n"))
	if e.err == nil {
		e.err = e.control.Flush()
	}
}
