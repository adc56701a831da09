package jinja

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestConstructs compares texts with those of Jinja2. Where Jinja2 has an error, so has this package.
func TestConstructs(t *testing.T) {
	data, err := os.ReadFile("testdata/constructs.json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Messages   []struct{ Role, Content string }
		Constructs []struct {
			Template string
			Text     *string
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var messages []any
	for _, m := range list.Messages {
		messages = append(messages, NewDict("role", m.Role, "content", m.Content))
	}
	for _, c := range list.Constructs {
		got, err := render(c.Template, messages)
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%s: got %q, want an error", c.Template, got)
		case c.Text != nil && (err != nil || got != *c.Text):
			t.Errorf("%s: got %q, %v; want %q", c.Template, got, err, *c.Text)
		}
	}
	if len(list.Constructs) < 200 {
		t.Errorf("only %d constructs", len(list.Constructs))
	}
}

func render(template string, messages []any) (string, error) {
	compiled, err := Compile(template)
	if err != nil {
		return "", err
	}
	return compiled.Render(map[string]any{
		"messages": messages, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "tools": nil, "documents": nil,
	})
}

// TestErrors checks that errors name the line and the problem, also for what Jinja2 supports and this
// package does not.
func TestErrors(t *testing.T) {
	for template, want := range map[string]string{
		"a\n{% if x %}":                        "line 2: {% endif %} is missing",
		"\n\n{{ 1 + }}":                        "line 3: got the end of the tag, want an expression",
		"{{ 'x":                                "line 1: a string has no end",
		"{{ (1 }}":                             "line 1: unexpected }",
		"{{ x":                                 "line 1: a tag has no }}",
		"{{ 1 ? 2 }}":                          "line 1: unexpected character '?'",
		"{# x":                                 "line 1: a comment has no end",
		"{% raw %}x":                           "line 1: {% raw %} has no {% endraw %}",
		"{% nosuch %}":                         "line 1: unknown tag {% nosuch %}",
		"{% include 'x' %}":                    "line 1: unknown tag {% include %}",
		"{{ nope.x }}":                         `line 1: "nope" is undefined`,
		"\n{{ messages.x.y }}":                 "line 2: a value of type list has no 'x'",
		"{{ none.x.y }}":                       "line 1: none has no 'x'",
		"{{ 1|nosuch }}":                       "line 1: unknown filter nosuch",
		"{{ 1|pprint }}":                       "line 1: unknown filter pprint",
		"{{ 1 is nosuch }}":                    "line 1: unknown test nosuch",
		"{{ 1|upper(2) }}":                     "line 1: filter upper: got 1 argument, want none",
		"{{ 'x'.encode() }}":                   "line 1: unsupported method encode of str",
		"{{ 99999999999999999999 }}":           "line 1: 99999999999999999999: want an integer below 2^63",
		"{{ 9223372036854775807 + 1 }}":        "line 1: an integer is not below 2^63",
		"{{ 3 ** 99 }}":                        "line 1: an integer is not below 2^63",
		"{{ 1e300|int }}":                      "line 1: filter int: an integer is not below 2^63",
		"{{ '99999999999999999999'|int }}":     "line 1: filter int: an integer is not below 2^63",
		"{{ (-9223372036854775807-1) // -1 }}": "line 1: an integer is not below 2^63",
		"{{ -9223372036854775808|abs }}":       "line 1: filter abs: an integer is not below 2^63",
		"{{ (-8) ** 0.5 }}":                    "line 1: a power of a negative number is complex",
		"{{ '{:08,}'.format(1234) }}":          "line 1: unsupported format 08,",
		"{{ '{:{}}'.format(1, 5) }}":           "line 1: unsupported format {:{}",
		"{{ (5).real }}":                       "line 1: unsupported attribute real of int",
		"{{ '\\ud800' }}":                      "line 1: \\ud800: not a character",
		"{{ 'a'|replace('b') }}":               "line 1: filter replace: argument new is missing",
		"{{ 'a'|replace('b', 'c', 1, 2) }}":    "line 1: filter replace: got 4 arguments, want at most 3",
		"{{ 'a'.partition('b', 'c') }}":        "line 1: partition: got 2 arguments, want 1",
		"{{ 'a'|trim(characters='b') }}":       "line 1: filter trim: unexpected argument characters",
		"{{ 'a'.strip(chars='b') }}":           "line 1: strip: arguments have no names",
		"{% macro f() %}{{ caller() }}{% endmacro %}{% call(x) f() %}{% endcall %}{{ f(1) }}": "line 1: macro f has 0 parameters, not 1",
		"{{ strftime_now('%Q') }}":                                    "line 1: strftime_now: unsupported directive %Q",
		"{% if true %}\n{% if true %}{{ 1/0 }}{% endif %}{% endif %}": "line 2: division by zero",
		"\n{{ raise_exception('as it is') }}":                         "as it is",
	} {
		if got, err := render(template, nil); err == nil || err.Error() != want {
			t.Errorf("%s: got %q, %v; want %s", template, got, err, want)
		}
	}
}

// TestRenderTogether renders a template in several goroutines: for the race detector.
func TestRenderTogether(t *testing.T) {
	compiled, err := Compile("{% set x | upper %}{{ word }}{% endset %}{% filter replace('w', '-') %}{{ x }} {{ word }}{% endfilter %}")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				got, err := compiled.Render(map[string]any{"word": fmt.Sprint("w", i)})
				if want := fmt.Sprintf("W%d -%d", i, i); got != want || err != nil {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
	all.Wait()
}

// TestStrftime checks all directives on a date whose parts differ.
func TestStrftime(t *testing.T) {
	at := time.Date(2024, time.March, 5, 14, 7, 9, 12345678, time.UTC)
	got, err := strftime(at, "%a %A %b %B %d %-d %e %H %I %-I %m %-m %M %-M %S %-S %p %y %Y %Z %z %f %j %F %T %D %R %h %c %x %X %%")
	const want = "Tue Tuesday Mar March 05 5  5 14 02 2 03 3 07 7 09 9 PM 24 2024 UTC +0000 012345 065 2024-03-05 14:07:09 03/05/24 14:07 " +
		"Mar Tue Mar  5 14:07:09 2024 03/05/24 14:07:09 %"
	if got != want || err != nil {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}
