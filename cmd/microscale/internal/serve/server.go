package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
)

// Config limits what a server computes.
type Config struct {
	Positions int              // of a context; 0: those of the model, at most 4096
	Parallel  int              // requests that run together, each with a context; at least 1
	Queue     int              // requests that wait
	MaxTokens int              // of an answer; 0: until its context is full
	Sampling  sampling.Options // for requests that do not give them

	Access  Access
	Aliases []string           // further names of the model that requests may use
	Unknown func(field string) // if not nil, is called once for each unknown field of requests; calls do not overlap

	times times // of tests; what is 0 is that of limits
}

// Limits that no client needs to exceed.
const (
	maxBody      = 8 << 20  // bytes of a request
	maxBodies    = 64 << 20 // bytes of all requests
	retrySeconds = "1"      // before a rejected request is worth repeating
)

// times are limits of time.
type times struct {
	read  time.Duration // to send a request
	write time.Duration // to accept a part of an answer
	idle  time.Duration // between requests of a connection
	grace time.Duration // for answers that run when the server stops
	close time.Duration // for canceled answers to write their error
}

var limits = times{read: 30 * time.Second, write: 30 * time.Second, idle: 2 * time.Minute, grace: 8 * time.Second, close: time.Second}

// withDefaults returns t with the limits that it leaves open.
func (t times) withDefaults() times {
	return times{
		cmp.Or(t.read, limits.read), cmp.Or(t.write, limits.write), cmp.Or(t.idle, limits.idle), cmp.Or(t.grace, limits.grace),
		cmp.Or(t.close, limits.close),
	}
}

// A Server answers requests with one model.
type Server struct {
	model   *generation.Model
	config  Config
	pool    *pool
	batch   *batch
	unknown reporter
	bodies  budget
	passes  int           // over the weights for single tokens; who has the turn counts
	turn    chan struct{} // holds an element while a forward pass runs
	created int64
}

// normalized is how many times longer a text may be than its tokens: normalizers shorten characters.
const normalized = 2

// New returns a server of m. It limits the texts that m encodes to those that can fit into a context.
func New(m *generation.Model, c Config) (*Server, error) {
	c.Positions, c.times = m.Positions(c.Positions), c.times.withDefaults()
	var contexts []*generation.Context
	for range c.Parallel {
		one, err := m.NewContext(c.Positions, c.Parallel)
		if err != nil {
			return nil, err
		}
		contexts = append(contexts, one)
	}
	m.Text.MaxBytes = c.Positions * m.Text.LongestToken() * normalized
	s := &Server{
		model: m, config: c, pool: newPool(contexts, c.Queue), batch: newBatch(), turn: make(chan struct{}, 1), created: time.Now().Unix(),
		unknown: reporter{report: c.Unknown, seen: map[string]bool{}},
	}
	s.bodies.free.Store(maxBodies)
	return s, nil
}

// Handler returns the endpoints.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, modelList{Object: "list", Data: []modelObject{s.describe()}})
	})
	mux.HandleFunc("GET /v1/models/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkModel(r.PathValue("name")); err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, s.describe())
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, chatEndpoint{}) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, textEndpoint{}) })
	for path, method := range map[string]string{
		"/health": "GET", "/v1/models": "GET", "/v1/models/{name...}": "GET", "/v1/chat/completions": "POST", "/v1/completions": "POST",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			writeError(w, &apiError{status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s does not take %s: use %s", r.URL.Path, r.Method,
				method)})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &apiError{status: http.StatusNotFound,
			Message: fmt.Sprintf("there is no %s %s: this server has POST /v1/chat/completions, POST /v1/completions and GET /v1/models", r.Method,
				r.URL.Path)})
	})
	return s.config.Access.guard(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		mux.ServeHTTP(timedWriter{w, s.config.times.write}, r)
	}))
}

// A timedWriter limits the time of each write, not that of the whole answer.
type timedWriter struct {
	http.ResponseWriter
	limit time.Duration
}

// Write writes a part of an answer.
func (w timedWriter) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.limit)) // not all writers have one
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checkModel returns an error unless a name is that of the served model, its last element, or an
// alias.
func (s *Server) checkModel(name string) *apiError {
	own := s.model.Name
	if name == own || name == path.Base(own) || slices.Contains(s.config.Aliases, name) {
		return nil
	}
	return &apiError{
		status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("there is no model %.200q: this server has %q", name, own),
	}
}

func (s *Server) describe() modelObject {
	return modelObject{ID: s.model.Name, Object: "model", Created: s.created, OwnedBy: "microscale"}
}

// Serve answers requests on a listener until ctx ends. Then it accepts no more requests, waits eight seconds for those
// that run, cancels the rest, and closes their connections after another second.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	answering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	limit := s.config.times
	h := &http.Server{
		Handler: s.Handler(), ReadTimeout: limit.read, WriteTimeout: limit.write, IdleTimeout: limit.idle, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return answering },
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	err := shutdown(h, limit.grace)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		err = shutdown(h, limit.close) // canceled answers end with their current pass
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close()
	}
	return err
}

// shutdown waits for a time until all requests are answered.
func shutdown(h *http.Server, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return h.Shutdown(ctx)
}

// An apiError is an error as OpenAI's API reports it.
type apiError struct {
	status  int
	Message string
	Type    string
	Param   string // "": null
	Code    string // "": null
}

// MarshalJSON writes all members, as OpenAI's API does.
func (e *apiError) MarshalJSON() ([]byte, error) {
	null := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, e.Type, null(e.Param), null(e.Code)})
}

func (e *apiError) Error() string { return e.Message }

// badRequest returns the error of a parameter.
func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// asAPI returns an error of a request as the client sees it.
func asAPI(err error) *apiError {
	var long *generation.PromptTooLong
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, errBusy):
		return &apiError{status: http.StatusServiceUnavailable, Message: err.Error(), Code: "busy"}
	case errors.Is(err, context.Canceled):
		return &apiError{status: http.StatusServiceUnavailable, Message: "the server is stopping", Code: "stopping"}
	case errors.As(err, &long), errors.As(err, new(*generation.TextTooLong)):
		return &apiError{status: http.StatusBadRequest, Message: err.Error(), Code: "context_length_exceeded"}
	case errors.Is(err, chat.ErrNoTemplate), errors.As(err, new(*generation.NoSuchToken)):
		return &apiError{status: http.StatusBadRequest, Message: err.Error()}
	}
	return &apiError{status: http.StatusInternalServerError, Message: err.Error()}
}

// typed sets the type of an error, which follows from its status.
func (e *apiError) typed() *apiError {
	e.Type = "invalid_request_error"
	if e.status >= http.StatusInternalServerError {
		e.Type = "server_error"
	}
	return e
}

func writeError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retrySeconds)
	}
	write(w, e.status, map[string]*apiError{"error": e.typed()})
}

func writeJSON(w http.ResponseWriter, document any) { write(w, http.StatusOK, document) }

// write writes an answer. Its client may have hung up, which needs no error.
func write(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}
