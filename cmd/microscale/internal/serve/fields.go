package serve

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// neutral lists parameters that this server does not support, with the values that request nothing.
// Other values are an error, because ignoring them would give another answer than the client asked
// for. They are parameters of OpenAI's API, then those of vLLM and llama.cpp.
var neutral = map[string][]string{
	"n": {"1"}, "best_of": {"1"}, "echo": {"false"}, "suffix": {`""`},
	"logprobs": {"false"}, "top_logprobs": {"0"}, "logit_bias": {"{}"},
	"presence_penalty": {"0"}, "frequency_penalty": {"0"},
	"tools": {"[]"}, "tool_choice": {`"none"`, `"auto"`}, "functions": {"[]"}, "function_call": {`"none"`, `"auto"`},
	"response_format": {`{"type":"text"}`}, "modalities": {`["text"]`},
	"audio": nil, "web_search_options": nil, "reasoning_effort": {`"none"`}, "verbosity": {`"medium"`},

	"repetition_penalty": {"1"}, "length_penalty": {"1"}, "use_beam_search": {"false"},
	"skip_special_tokens": {"true"}, "min_tokens": {"0"}, "ignore_eos": {"false"}, "stop_token_ids": {"[]"}, "bad_words": {"[]"}, "allowed_token_ids": nil,
	"include_stop_str_in_output": {"false"}, "truncate_prompt_tokens": nil, "prompt_logprobs": nil, "prompt_embeds": nil,
	"structured_outputs": nil, "guided_json": nil, "guided_regex": nil, "guided_choice": nil, "guided_grammar": nil,
	"chat_template": nil, "chat_template_kwargs": {"{}"}, "documents": {"[]"},
	"add_generation_prompt": {"true"}, "continue_final_message": {"false"},
	"grammar": {`""`}, "json_schema": {"{}"}, "n_predict": {"-1"}, "n_probs": {"0"},
	"typical_p": {"1"}, "mirostat": {"0"}, "dynatemp_range": {"0"}, "dry_multiplier": {"0"}, "xtc_probability": {"0"},
}

// harmless lists parameters of the same APIs that this server ignores, because they do not change an
// answer: identity, storage, caching and priority.
var harmless = map[string]bool{
	"user": true, "metadata": true, "store": true, "safety_identifier": true, "service_tier": true,
	"prompt_cache_key": true, "prompt_cache_retention": true, "prediction": true, "parallel_tool_calls": true,
	"request_id": true, "priority": true, "cache_salt": true, "spaces_between_special_tokens": true,
	"cache_prompt": true, "id_slot": true, "timings_per_token": true,
}

// supported lists the fields of a request.
var supported = func() map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[request]()) {
		if name := field.Tag.Get("json"); name != "" {
			names[name] = true
		}
	}
	return names
}()

// checkFields returns an error for the first parameter that would change the answer and is not
// supported, and the sorted names of unknown fields. It removes all but the supported fields from
// members.
func checkFields(members map[string]json.RawMessage) (unknown []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if supported[name] {
			continue
		}
		values, known := neutral[name]
		value := string(members[name])
		switch {
		case harmless[name]:
		case !known:
			unknown = append(unknown, name)
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
