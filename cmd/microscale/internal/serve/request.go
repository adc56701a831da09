package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
)

// request is the body of both endpoints: parameters of OpenAI's API, and top_k, min_p and
// repeat_penalty of other servers.
type request struct {
	Model string `json:"model"` // empty: the served one

	Messages []map[string]json.RawMessage `json:"messages"`
	Prompt   *prompts                     `json:"prompt"`
	Echo     bool                         `json:"echo"` // the text of a completion begins with the prompt

	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	TopK                *int     `json:"top_k"`
	TopP                *float64 `json:"top_p"`
	MinP                *float64 `json:"min_p"`
	RepeatPenalty       *float64 `json:"repeat_penalty"`
	Seed                *int64   `json:"seed"`
	Stop                texts    `json:"stop"`

	Logprobs    *logprobs `json:"logprobs"`     // a number for completions, a bool for chat
	TopLogprobs *int      `json:"top_logprobs"` // for chat

	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`

	unknown []string // fields that neither this server nor OpenAI's API has
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// logprobs asks for the probabilities of tokens, and of a number of the most likely ones in their places.
type logprobs struct {
	wanted bool
	top    int
}

// UnmarshalJSON reads a bool, or a number.
func (l *logprobs) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &l.wanted) == nil {
		return nil
	}
	l.wanted = true
	if json.Unmarshal(data, &l.top) != nil {
		return badRequest("logprobs", "logprobs: want a bool or an integer")
	}
	return nil
}

// A budget limits the bytes of requests that a server holds.
type budget struct{ free atomic.Int64 }

// take reports whether n bytes were free, and takes them.
func (b *budget) take(n int64) bool {
	if b.free.Add(-n) >= 0 {
		return true
	}
	b.free.Add(n)
	return false
}

// A requestBody is the body of a request. It counts its bytes in a budget.
type requestBody struct {
	io.Reader
	budget *budget
	bytes  int64
}

// Read returns errBusy if the budget is spent.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.budget.take(int64(n)) {
		return 0, errBusy
	}
	b.bytes += int64(n)
	return n, err
}

// close returns the bytes to the budget.
func (b *requestBody) close() { b.budget.free.Add(b.bytes) }

// readBody reads the body of a request within limit, the time that net/http gives it. After that, only the end of the
// connection is read, which may take long.
func readBody(w http.ResponseWriter, b *requestBody, limit time.Duration) ([]byte, error) {
	data, err := io.ReadAll(b)
	large := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(large.Limit)
	case errors.Is(err, errBusy):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &apiError{status: http.StatusRequestTimeout, Message: fmt.Sprintf("the request was not received in %v", limit)}
	case err != nil:
		return nil, badRequest("", "the request was not received: %v", err)
	}
	w.Header().Del("Connection")
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not all writers have one
	return data, nil
}

func tooLarge(limit int64) *apiError {
	return &apiError{status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request has more than %d bytes", limit)}
}

// parseRequest parses the body of a request.
func parseRequest(data []byte) (q request, err error) {
	if !utf8.Valid(data) {
		return q, badRequest("", "the request is not UTF-8")
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal(data, &members)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return q, badRequest("", "the request is not a JSON object, but of type %s", e.Value)
	}
	if err != nil {
		return q, badRequest("", "the request is not a JSON object: %v", err)
	}
	if q.unknown, err = requestFields.check(members); err != nil {
		return q, err
	}
	for _, name := range q.unknown { // the decoder would also take the names of fields in another case
		delete(members, name)
	}
	if options := map[string]json.RawMessage{}; json.Unmarshal(members["stream_options"], &options) == nil {
		unknown, err := streamFields.check(options)
		if err != nil {
			return q, badRequest("stream_options", "stream_options: %v", err)
		}
		for _, name := range unknown {
			q.unknown = append(q.unknown, "stream_options."+name)
			delete(options, name)
		}
		if members["stream_options"], err = json.Marshal(options); err != nil {
			return q, err
		}
	}
	for name, value := range members {
		members[name] = integer(value)
	}
	if data, err = json.Marshal(members); err != nil {
		return q, err
	}
	err = json.Unmarshal(data, &q)
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		err = badRequest(e.Field, "%s: unexpected %s", e.Field, e.Value)
	}
	return q, err
}

// integer returns a number that is written as a float, such as 8.0, as an integer if it is one: JSON has one kind of
// numbers. Other values stay.
func integer(value json.RawMessage) json.RawMessage {
	const exact = 1 << 53 // integers up to here are float64 values
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact || !bytes.ContainsAny(value, ".eE") {
		return value
	}
	return strconv.AppendInt(nil, int64(f), 10)
}

// generation returns the request to the model, without its prompt.
func (q *request) generation(c Config, e endpoint, seed uint64) (r generation.Request, err error) {
	r = generation.Request{MaxTokens: c.MaxTokens, Stop: q.Stop, Sampling: c.Sampling}
	r.Sampling.Seed = seed
	if err := e.set(q, &r); err != nil {
		return r, err
	}
	limit, name := q.MaxCompletionTokens, "max_completion_tokens"
	if limit == nil {
		limit, name = q.MaxTokens, "max_tokens"
	}
	if limit != nil {
		if least := e.minTokens(); *limit < least {
			return r, badRequest(name, "%s is %d, want at least %d", name, *limit, least)
		}
		if r.PromptOnly = *limit == 0; r.PromptOnly {
			r.MaxTokens = 1 // instead of no limit
		} else if r.MaxTokens == 0 || *limit < r.MaxTokens {
			r.MaxTokens = *limit
		}
	}
	override(&r.Sampling.Temperature, q.Temperature)
	override(&r.Sampling.TopK, q.TopK)
	if r.Sampling.TopK == allTokens {
		r.Sampling.TopK = 0
	}
	override(&r.Sampling.TopP, q.TopP)
	override(&r.Sampling.MinP, q.MinP)
	override(&r.Sampling.RepeatPenalty, q.RepeatPenalty)
	if q.Seed != nil {
		r.Sampling.Seed = uint64(*q.Seed)
	}
	const mostStops = 64
	switch {
	case len(q.Stop) > mostStops:
		return r, badRequest("stop", "stop has %d strings, want at most %d", len(q.Stop), mostStops)
	case slices.Contains(q.Stop, ""):
		return r, badRequest("stop", "stop has an empty string, which would end every answer: leave it out")
	}
	err = r.Sampling.Validate()
	if e := (*sampling.OutOfRange)(nil); errors.As(err, &e) {
		name := strings.NewReplacer("-", "_", " ", "_").Replace(e.Name)
		err = badRequest(name, "%s is %.10g, want %.10g to %.10g", name, e.Value, e.Low, e.High)
	}
	return r, err
}

// allTokens is the value of top_k that vLLM and its clients have for no limit.
const allTokens = -1

func override[T any](dst *T, given *T) {
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
