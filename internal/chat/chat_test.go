package chat

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const chatML = `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You help.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}`

func TestRender(t *testing.T) {
	for _, c := range []struct {
		template string
		messages []Message
		o        Options
		want     string
	}{
		{chatML, []Message{{"user", "Hi"}}, Options{AddGenerationPrompt: true}, "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
		{chatML, []Message{{"system", "S"}, {"user", "{{ 1 }}"}}, Options{}, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n{{ 1 }}<|im_end|>\n"},
		{`{{ bos_token }}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ eos_token }}`, nil, Options{BOS: "<s>", EOS: "</s>"}, "<s>321</s>"},
		{`{% for i in range(0, 9223372036854775807, 9223372036854775806) %}{{ i }},{% endfor %}`, nil, Options{}, "0,9223372036854775806,"},
		{`{% for i in range(0, -9223372036854775807, -9223372036854775806) %}{{ i }},{% endfor %}`, nil, Options{}, "0,-9223372036854775806,"},
		{`{%- macro down(n) -%} {{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %} {%- endmacro -%} {{ down(60) | length }}`, nil, Options{}, "112"},
		{"a\n  {% macro m() %}\n  b\n  {% endmacro %}\n{{ m() }}", nil, Options{}, "a\n  b\n"},
		{`{% macro show(x) %}[{{ x.show }}{{ "show(x)" }}]{% endmacro %}{{ show({"show": 1}) }}`, nil, Options{}, "[1show(x)]"},
	} {
		got, err := Render(c.template, c.messages, c.o)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.template, got, err, c.want)
		}
	}
}

// TestWhiteSpace compares with what Python's jinja2 3 writes with trim_blocks and lstrip_blocks.
func TestWhiteSpace(t *testing.T) {
	for template, want := range map[string]string{
		"{{ 1 }} {% if true %}x{% endif %}":                      "1 x",
		"a {{ 1 }}{%- if true %}x{% endif %}":                    "a 1x",
		"{% if true %}{{ 1 }}\nfoo{% endif %}":                   "1\nfoo",
		"{{ 1 -}}{{ 2 }} b":                                      "12 b",
		"q{% if true -%}{{ 1 }} b{% endif %}":                    "q1 b",
		"q\n  {{ 1 }}{% if true %}{% endif %}":                   "q\n  1",
		"a\n  {%+ if true %}x{% endif +%}\nb":                    "a\n  x\nb",
		"  {# c #}\n  {% if true %}\n  x\n  {% endif %}\ny\n":    "  x\ny",
		"{% raw %} {{ \"x\\\" }}\n{% endraw %}\nb":               " {{ \"x\\\" }}\nb",
		"{{ '}}' }}{{ '{% if' }}":                                "}}{% if",
		"{%- if true %} a {{- 1 }} {#- c -#} {{ 2 }}{% endif %}": " a12",
	} {
		if got, err := Render(template, nil, Options{}); err != nil || got != want {
			t.Errorf("%q: got %q (%v), want %q", template, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for template, want := range map[string]string{
		"{% for x in messages %}":                            "chat template: ",
		"{{ raise_exception('roles must\nalternate') }}":     "roles must alternate",
		"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}": "more than 100 macros call each other",
		"{%- macro a() -%}{% set g = b %}{{ g() }}{% endmacro %}{% macro b() %}{% if a() %}{% endif %}{% endmacro %}{{ a() }}": "more than 100 macros call each other",
		"{% for i in range(1000) %}{% for j in range(1000) %}x{% endfor %}{% endfor %}":                                        "counts more than 100000",
		"{% for i in range(9223372036854775807) %}{% endfor %}":                                                                "counts more than 100000",
		"{% for i in range(1, 2, 0) %}{% endfor %}":                                                                            "the step is 0",
		"{{ 'a' * -1 }}":             "negative Repeat count", // a panic of the library
		strings.Repeat("x", 1<<20+1): "it has 1048577 bytes",
		"{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}": "more than 200 brackets",
		"{% set x = 'y' * 100000000 %}{{ x }}":                                            "a text of 100000000 bytes",
		"{{ messages | nosuchfilter }}":                                                   "nosuchfilter",
		"{% for x in range('a') %}{% endfor %}" + strings.Repeat("x", 1000):               "is not an integer",
	} {
		start := time.Now()
		text, err := Render(template, []Message{{"user", "x"}}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%s: got %.50q, %v; want an error with %q", template, text, err, want)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", template, took)
		}
	}
}

// TestRunaway checks that templates that loop for long, or double a text, end with an error. They go
// on after that, so this is the last test.
func TestRunaway(t *testing.T) {
	if !testing.Short() {
		const long = "{% set s = 'x' * 1000 %}{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}"
		start := time.Now()
		text, err := Render(long, nil, Options{})
		if took := time.Since(start); !errors.Is(err, ErrRunaway) || took < maxTime || took > 6*maxTime {
			t.Errorf("nested loops: got %.50q, %v after %v", text, err, took)
		}
	}
	const doubling = "{% set ns = namespace(x='0123456789abcdef' * 65536) %}{% for i in range(10) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x[0] }}"
	if text, err := Render(doubling, nil, Options{}); !errors.Is(err, ErrRunaway) || strings.Contains(err.Error(), "\n") {
		t.Errorf("doubling: got %.50q, %v", text, err)
	}
}
