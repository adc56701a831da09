package serve

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// A level is a table of the members of an object of a request. Members that it does not list are unknown.
type level struct {
	supported map[string]bool

	// neutral lists members that this server does not support, with the values that request nothing. Other values
	// are an error, because ignoring them would give another answer than the client asked for.
	neutral map[string][]string

	// harmless lists members that this server ignores, because they do not change an answer: identity, storage,
	// caching and priority.
	harmless map[string]bool
}

// set returns a set of names.
func set(names ...string) map[string]bool {
	s := map[string]bool{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

// requestFields are parameters of OpenAI's API, then those of vLLM and llama.cpp.
var requestFields = level{
	supported: tags(reflect.TypeFor[request]()),
	neutral: map[string][]string{
		"n": {"1"}, "best_of": {"1"}, "suffix": {`""`}, "logit_bias": {"{}"},
		"presence_penalty": {"0"}, "frequency_penalty": {"0"},
		"tools": {"[]"}, "tool_choice": {`"none"`, `"auto"`}, "functions": {"[]"}, "function_call": {`"none"`, `"auto"`},
		"response_format": {`{"type":"text"}`}, "modalities": {`["text"]`},
		"audio": nil, "web_search_options": nil, "reasoning_effort": {`"none"`}, "verbosity": {`"medium"`},

		"repetition_penalty": {"1"}, "length_penalty": {"1"}, "use_beam_search": {"false"},
		"skip_special_tokens": {"true"}, "min_tokens": {"0"}, "ignore_eos": {"false"}, "stop_token_ids": {"[]"}, "bad_words": {"[]"},
		"allowed_token_ids":          nil,
		"include_stop_str_in_output": {"false"}, "truncate_prompt_tokens": nil, "prompt_logprobs": nil, "prompt_embeds": nil,
		"structured_outputs": nil, "guided_json": nil, "guided_regex": nil, "guided_choice": nil, "guided_grammar": nil,
		"chat_template": nil, "chat_template_kwargs": {"{}"}, "documents": {"[]"},
		"add_generation_prompt": {"true"}, "continue_final_message": {"false"},
		"grammar": {`""`}, "json_schema": {"{}"}, "n_predict": {"-1"}, "n_probs": {"0"},
		"typical_p": {"1"}, "mirostat": {"0"}, "dynatemp_range": {"0"}, "dry_multiplier": {"0"}, "xtc_probability": {"0"},
	},
	harmless: set("user", "metadata", "store", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_retention", "prediction",
		"parallel_tool_calls",
		"request_id", "priority", "cache_salt", "spaces_between_special_tokens", "cache_prompt", "id_slot", "timings_per_token"),
}

// messageFields are members of messages. Templates read the unknown ones, as with transformers. Calls of tools, and
// messages that the answer is to continue, would need more than that.
var messageFields = level{
	supported: set("role", "content"),
	neutral: map[string][]string{"tool_calls": {"[]"}, "function_call": nil, "audio": nil, "refusal": {`""`}, "prefix": {"false"},
		"partial": {"false"}},
	harmless: set("annotations", "id"),
}

// partFields are members of the parts of a message.
var partFields = level{supported: set("type", "text"), harmless: set("cache_control", "annotations")}

// streamFields are members of stream_options.
var streamFields = level{
	supported: tags(reflect.TypeFor[streamOptions]()),
	neutral:   map[string][]string{"continuous_usage_stats": {"false"}},
	harmless:  set("include_obfuscation"),
}

// tags returns the names in JSON of the fields of a type.
func tags(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(t) {
		if name := field.Tag.Get("json"); name != "" {
			names[name] = true
		}
	}
	return names
}

// check returns an error for the first member that would change the answer and is not supported, and the sorted
// names of unknown members. It leaves only the supported and the unknown members.
func (l *level) check(members map[string]json.RawMessage) (unknown []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if l.supported[name] {
			continue
		}
		values, known := l.neutral[name]
		value := string(members[name])
		switch {
		case l.harmless[name]:
		case !known:
			unknown = append(unknown, name)
			continue
		case value != "null" && !slices.ContainsFunc(values, func(v string) bool { return sameJSON(v, value) }):
			return nil, badRequest(name, "%s is not supported: leave it out", name)
		}
		delete(members, name)
	}
	return unknown, nil
}

// sameJSON reports whether two JSON texts have the same value.
func sameJSON(a, b string) bool {
	var x, y any
	err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y))
	return err == nil && reflect.DeepEqual(x, y)
}

// A reporter reports each unknown field of requests once, up to a number that no honest client
// reaches.
type reporter struct {
	report func(field string)
	mutex  sync.Mutex
	seen   map[string]bool
}

func (r *reporter) add(fields []string) {
	const most = 32
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, field := range fields {
		if r.report != nil && !r.seen[field] && len(r.seen) < most {
			r.seen[field] = true
			r.report(field)
		}
	}
}
