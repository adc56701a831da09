// Package chat writes conversations as the text that a model was trained on, by the template
// that comes with it: Jinja, as transformers runs it.
package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// A Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, …
	Content string
}

// Options are what a template may ask for beside the messages.
type Options struct {
	AddGenerationPrompt bool   // end with the beginning of the model's answer
	BOS, EOS            string // tokens, as text
}

// Render writes a conversation. The text holds special tokens, and usually the one that begins a
// text: it is encoded without another.
//
// A template is a program of whoever made the model. One whose macros call each other without end,
// that counts further than a conversation needs, or whose text is too long, is an error; one that
// takes too much time or memory is ErrRunaway. Memory is that of the whole process: do nothing else
// meanwhile that takes much.
func Render(template string, messages []Message, o Options) (string, error) {
	text, err := render(template, messages, o)
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("the conversation is a text of %d bytes, want at most %d", len(text), maxText)
	}
	if errors.Is(err, ErrRunaway) {
		return "", fmt.Errorf("chat template: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", oneLine(err))
	}
	return text, nil
}

func render(template string, messages []Message, o Options) (string, error) {
	if err := checkSize(template); err != nil {
		return "", err
	}
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = jinja.NewDict()
		list[i].AsDict().Set("role", jinja.NewString(m.Role))
		list[i].AsDict().Set("content", jinja.NewString(m.Content))
	}
	var depth callDepth
	values := map[string]jinja.Value{
		"messages":              jinja.NewList(list),
		"add_generation_prompt": jinja.NewBool(o.AddGenerationPrompt),
		"bos_token":             jinja.NewString(o.BOS),
		"eos_token":             jinja.NewString(o.EOS),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
		"range":                 jinja.NewCallable("range", newCounter()),
		enterMacro:              jinja.NewCallable(enterMacro, depth.enter),
		leaveMacro:              jinja.NewCallable(leaveMacro, depth.leave),
	}
	return watch(func() (string, error) {
		compiled, err := jinja.Compile(explicitText(template))
		if err != nil {
			return "", err
		}
		return compiled.RenderValues(values)
	})
}

// oneLine keeps an error of the library, which may quote the template, to one line.
func oneLine(err error) error {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return fmt.Errorf("%s", text)
}

// mostNumbers is what range may count in one rendering.
const mostNumbers = 100_000

// newCounter returns range(stop), range(start, stop) and range(start, stop, step) with a limit.
func newCounter() func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
	left := int64(mostNumbers)
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		start, stop, step := int64(0), int64(0), int64(1)
		targets := map[int][]*int64{1: {&stop}, 2: {&start, &stop}, 3: {&start, &stop, &step}}[len(args)]
		if targets == nil {
			return jinja.Undefined(), fmt.Errorf("range: got %d arguments, want 1 to 3", len(args))
		}
		for i, a := range args {
			if !a.IsInt() {
				return jinja.Undefined(), fmt.Errorf("range: argument %d is not an integer", i+1)
			}
			*targets[i] = a.AsInt()
		}
		if step == 0 {
			return jinja.Undefined(), fmt.Errorf("range: the step is 0")
		}
		var numbers []jinja.Value
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			if left--; left < 0 {
				return jinja.Undefined(), fmt.Errorf("range: the template counts more than %d numbers", mostNumbers)
			}
			numbers = append(numbers, jinja.NewInt(i))
			if (i+step > i) != (step > 0) { // the next number overflows
				break
			}
		}
		return jinja.NewList(numbers), nil
	}
}

// Macros that call each other are a recursion of the library, and one without end would fill the
// stack and end the process. So each macro counts how deep it is, by functions that no template
// has.
const (
	enterMacro = "microscale_enter_macro"
	leaveMacro = "microscale_leave_macro"
	mostCalls  = 100 // macros within each other
)

// A callDepth counts macros within each other.
type callDepth int

func (d *callDepth) enter([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	if *d++; *d > mostCalls {
		return jinja.None(), fmt.Errorf("more than %d macros call each other", mostCalls)
	}
	return jinja.None(), nil
}

func (d *callDepth) leave([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	*d--
	return jinja.None(), nil
}
