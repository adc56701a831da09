package chat

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
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
		{chatML, []Message{{Role: "user", Content: "Hi"}}, Options{AddGenerationPrompt: true},
			"<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
		{chatML, []Message{{Role: "system", Content: "S"}, {Role: "user", Content: "{{ 1 }}"}}, Options{},
			"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n{{ 1 }}<|im_end|>\n"},
		{"{{ messages[0].name }} {{ messages[0].reasoning_content is defined }} {{ messages[0] | tojson }}",
			[]Message{{Role: "user", Content: "Hi", Fields: []Field{{"name", []byte(`"ada"`)}, {"n", []byte(`{"b": [1], "a": 2}`)}}}}, Options{},
			`ada False {"role": "user", "content": "Hi", "name": "ada", "n": {"b": [1], "a": 2}}`},
		{`{{ bos_token }}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ eos_token }}`, nil, Options{BOS: "<s>", EOS: "</s>"}, "<s>321</s>"},
		{"{% for m in messages %}{{ m.content }}{% endfor %}", []Message{{Role: "user", Content: "not UTF-8: \xff"}}, Options{},
			"not UTF-8: \xff"},
		{`{%- macro down(n) -%} {{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %} {%- endmacro -%} {{ down(60) | length }}`, nil, Options{},
			"112"},
		{"a\n  {% macro m() %}\n  b\n  {% endmacro %}\n{{ m() }}", nil, Options{}, "a\n  b\n"},
		{`{% macro show(x) %}[{{ x.show }}{{ "show(x)" }}]{% endmacro %}{{ show({"show": 1}) }}`, nil, Options{}, "[1show(x)]"},
	} {
		got, err := Render(t.Context(), c.template, c.messages, c.o)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.template, got, err, c.want)
		}
	}
}

// TestWhiteSpace compares with what Python's jinja2 3 writes with trim_blocks and lstrip_blocks.
func TestWhiteSpace(t *testing.T) {
	slow.Race(t, slow.Repeats)
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
		"{% raw %}\n{{ x }}{% endraw %}\nb":                      "\n{{ x }}b",
		"  {% raw %}\n  x{% endraw %}b":                          "\n  xb",
		"{{ '}}' }}{{ '{% if' }}":                                "}}{% if",
		"{%- if true %} a {{- 1 }} {#- c -#} {{ 2 }}{% endif %}": " a12",
	} {
		if got, err := Render(t.Context(), template, nil, Options{}); err != nil || got != want {
			t.Errorf("%q: got %q (%v), want %q", template, got, err, want)
		}
	}
}

// TestErrors checks the problems that the library reports.
func TestErrors(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for template, want := range map[string]string{
		"{% for x in messages %}":                                            "chat template: ",
		"{{ raise_exception('roles must\nalternate') }}":                     "roles must alternate",
		"{% for i in range(1, 2, 0) %}{% endfor %}":                          "the step of a range is zero",
		"{{ 'ab' * 9000000000000000000 }}":                                   "output length overflow", // a panic
		"{% for i in range(1000000000000) %}{% endfor %}":                    "a range has more than 100000 elements",
		"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}":                   "append of a list is forbidden",
		"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns | tojson }}":     "namespace is not JSON serializable",
		"{{ messages[0].author.name }}":                                      "line 1: a value of type dict has no 'author'",
		"x\n{{ 'a' + none }}":                                                "line 2: + has no meaning for values of types str and None",
		"{% set x = 'y' * 100000000 %}{{ x }}":                               "a text of 100000000 bytes",
		"{{ messages | nosuchfilter }}":                                      "nosuchfilter",
		"{{ messages | " + strings.Repeat("x", 1000) + " }}":                 "unknown filter",
		"{{ raise_exception(('long line\n' * 10000) | replace('l', 'L')) }}": "Long Line",
	} {
		text, err := Render(t.Context(), template, []Message{{Role: "user", Content: "x"}}, Options{})
		if rejection := (*Rejection)(nil); !errors.As(err, &rejection) || !strings.Contains(err.Error(), want) || !isLine(err) {
			t.Errorf("%s: got %.50q, %v; want an error with %q", template, text, err, want)
		}
	}
}

// isLine reports whether an error is one line of moderate length.
func isLine(err error) bool { return !strings.Contains(err.Error(), "\n") && len(err.Error()) < 400 }

// runaways are templates that would end the process that renders them, or take minutes.
var runaways = map[string]string{
	"repetition":     "{{ 'x' * 100000000000 }}",
	"repetitions":    "{{ 'x' * 100000 * 100000 * 100000 }}",
	"nested loops":   "{% for i in range(100000) %}{% for j in range(100000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
	"join":           "{{ range(100000) | list | join('x' * 1000000) }}",
	"format":         "{{ ('{0}' * 1000000).format('x' * 1000000) }}",
	"replacement":    "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
	"replace method": "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}",
	"indentation":    "{{ 'x\ny' | indent(100000000000) }}",
	"indented JSON":  "{{ [[1]] | tojson(indent=100000000000) }}",
	"doubled text": "{% set ns = namespace(x='0123456789abcdef' * 65536) %}{% for i in range(10) %}{% set ns.x = ns.x ~ ns.x %}{% " +
		"endfor %}{{ ns.x[0] }}",
	"doubled list":     "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"nested lists":     "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
	"recursive macro":  "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
	"mutual recursion": "{%- macro a() -%}{% set g = b %}{{ g() }}{% endmacro %}{% macro b() %}{% if a() %}{% endif %}{% endmacro %}{{ a() }}",
	"recursive caller": "{% set ns = namespace() %}{% macro m() %}{% set ns.f = caller %}{{ caller() }}{% endmacro %}{% call m() %}{{ " +
		"ns.f() }}{% endcall %}",
	"brackets":  "{{ " + strings.Repeat("(", 1<<20) + "1" + strings.Repeat(")", 1<<20) + " }}",
	"signs":     "{{ " + strings.Repeat("-", 1<<22) + "1 }}",
	"negations": "{{ " + strings.Repeat("not ", 1<<22) + "1 }}",
	"blocks":    strings.Repeat("{% if 1 %}", 1<<19) + strings.Repeat("{% endif %}", 1<<19),
}

// TestRunaways checks that each ends with one clear line, and that the process goes on.
func TestRunaways(t *testing.T) {
	slow.Long(t, "it waits for limits of time and memory")
	for name, template := range runaways {
		t.Run(name, func(t *testing.T) {
			j := job{Template: template, Conversations: [][]Message{{{Role: "user", Content: "x"}}}}
			if r, err := j.run(t.Context(), time.Second); !errors.Is(err, ErrRunaway) || !isLine(err) {
				t.Errorf("got %.50q, %.50q, %v", r.Texts, r.Problem, err)
			}
		})
	}
}

// TestFailure checks that a process that fails below all limits is no runaway: its error has the exit
// status.
func TestFailure(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exit := (*exec.ExitError)(nil)
	if _, err := exec.Command(program, childArgument).Output(); !errors.As(err, &exit) { // without a job
		t.Fatal(err)
	}
	if err := failure(exit); errors.Is(err, ErrRunaway) || !strings.HasSuffix(err.Error(), "failed: exit status 1") || !isLine(err) {
		t.Errorf("got %v", err)
	}
}

// TestTime checks that a template that loops for long ends after the limit, and with its context.
func TestTime(t *testing.T) {
	const long = "{% set s = 'x' * 1000 %}{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}"
	j := job{Template: long, Conversations: make([][]Message, 1)}
	if r, err := j.run(t.Context(), 200*time.Millisecond); !errors.Is(err, ErrRunaway) {
		t.Errorf("limited time: got %+v, %v", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Render(ctx, long, nil, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended context: got %v", err)
	}
}
