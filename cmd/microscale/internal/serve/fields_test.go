package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestModelName checks which names of the model requests may use, and the error of others.
func TestModelName(t *testing.T) {
	s := start(t, Config{Parallel: 1, Aliases: []string{"/models/tiny.gguf"}})
	for name, want := range map[string]int{
		``: 200, `"model": null,`: 200, `"model": "",`: 200, `"model": "tiny/model",`: 200, `"model": "model",`: 200,
		`"model": "/models/tiny.gguf",`: 200,
		`"model": "tiny",`:              404, `"model": "gpt-4o",`: 404, `"model": "Tiny/Model",`: 404, `"model": ["model"],`: 400,
	} {
		for path, prompt := range map[string]string{"/v1/completions": `"prompt": "x"`,
			"/v1/chat/completions": `"messages": [{"role": "user", "content": "x"}]`} {
			status, body := s.post(t, path, "{"+name+prompt+`, "max_tokens": 1}`)
			const problem = `this server has \"tiny/model\"","type":"invalid_request_error","param":"model","code":"model_not_found"}}`
			if status != want || (status == 200) != strings.Contains(body, `"model":"tiny/model"`) || (status == 404) != strings.Contains(body,
				problem) {
				t.Errorf("%s %s: %d %s, want %d", path, name, status, body, want)
			}
		}
	}
}

// TestFields sends every field that this server knows without supporting it: with a neutral value,
// which is accepted, and with another one, which is an error that names the field unless it is harmless.
func TestFields(t *testing.T) {
	var mutex sync.Mutex
	var unknown []string
	s := start(t, Config{Parallel: 1, Unknown: func(field string) {
		mutex.Lock()
		defer mutex.Unlock()
		unknown = append(unknown, field)
	}})
	send := func(field, value string) (status int, body string) {
		return s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt": "x", "max_tokens": 1, %q: %s}`, field, value))
	}
	all := maps.Clone(requestFields.neutral)
	for name := range requestFields.harmless {
		all[name] = []string{"true", `"text"`, "{}", "7"}
	}
	for name, values := range all {
		if requestFields.supported[name] || requestFields.harmless[name] && requestFields.neutral[name] != nil {
			t.Errorf("%s is in several lists", name)
		}
		for _, value := range append(values, "null") {
			if status, body := send(name, value); status != 200 {
				t.Errorf("%s: %s: %d %s", name, value, status, body)
			}
		}
		if status, body := send(name, `"other"`); requestFields.harmless[name] != (status == 200) || status != 200 && !strings.Contains(body,
			`"param":"`+name+`"`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	mutex.Lock()
	known := len(unknown) == 0
	mutex.Unlock()
	if !known {
		t.Errorf("known fields are reported as unknown")
	}
	for field, value := range map[string]string{"n": "1.0", "logit_bias": "{ }", "top_k": "1"} {
		if status, body := send(field, value); status != 200 {
			t.Errorf("%s: %s: %d %s", field, value, status, body)
		}
	}
	for field, value := range map[string]string{"suffix": `"  "`, "grammar": `" "`, "n": "1e1"} {
		if status, body := send(field, value); status != 400 {
			t.Errorf("%s: %s: %d %s", field, value, status, body)
		}
	}
	// A name in another case is an unknown field without an effect.
	if status, body := send("MAX_TOKENS", "-1"); status != 200 {
		t.Errorf("MAX_TOKENS: %d %s", status, body)
	}
	for range 2 {
		if status, body := send("temprature", "5"); status != 200 {
			t.Errorf("unknown field: %d %s", status, body)
		}
	}
	for i := range 100 {
		if status, _ := send(fmt.Sprint("field", i), "1"); status != 200 {
			t.Errorf("unknown field %d: %d", i, status)
		}
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(unknown) != 32 || unknown[0] != "MAX_TOKENS" || unknown[1] != "temprature" || slices.Contains(unknown[2:], "temprature") {
		t.Errorf("reported %q", unknown)
	}
}

// TestSupportedFields checks that each supported field has an effect: a value out of its range, or of
// another type, is an error that names it.
func TestSupportedFields(t *testing.T) {
	s := start(t, Config{Parallel: 1})
	values := map[string]string{
		"model": "1", "messages": `"x"`, "prompt": "1", "echo": "1", "logprobs": "-1", "top_logprobs": "21", "max_tokens": "-1",
		"max_completion_tokens": "-1", "temperature": "-0.5", "top_k": "0.5", "top_p": "1.5",
		"min_p": "-1", "repeat_penalty": "1e9", "seed": `"x"`, "stop": "[1]", "stream": `"yes"`, "stream_options": "true",
	}
	for name := range requestFields.supported {
		value, ok := values[name]
		if !ok {
			t.Errorf("no value for %s", name)
			continue
		}
		path, rest := "/v1/completions", `, "prompt": "x"`
		switch name {
		case "messages":
			path = "/v1/chat/completions"
		case "top_logprobs":
			path, rest = "/v1/chat/completions", `, "logprobs": true, "messages": [{"role": "user", "content": "x"}]`
		case "prompt":
			rest = ""
		}
		status, body := s.post(t, path, fmt.Sprintf(`{%q: %s%s}`, name, value, rest))
		if status != 400 || !strings.Contains(body, `"param":"`+name+`"`) || !strings.Contains(body, `"message":"`+name) {
			t.Errorf("%s: %s: %d %s", name, value, status, body)
		}
	}
}
