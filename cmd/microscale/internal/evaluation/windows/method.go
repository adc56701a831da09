package windows

import (
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/internal/naming"
)

// A Method is a convention of evaluation: the windows of a text, and which tokens are scored.
type Method struct {
	Name    string
	Doc     string // one line
	Context int    // default window in tokens
	Literal bool   // special tokens in the text are text

	begin   begin
	overlap bool // a window starts half a context after the one before, and the last one may be shorter
	second  bool // only the second half of a window is scored
	minimum int  // windows that a text must fill
}

// A begin is where the token that begins a text stands, in vocabularies that add one.
type begin int

const (
	beginText   begin = iota // before the text
	beginWindow              // before the text, and in place of the first token of each window
)

// LlamaCPP is the name of the method of llama.cpp, and of a Base.
const LlamaCPP = "llama.cpp"

var methods = []Method{
	{Name: LlamaCPP, Doc: "disjoint windows, second halves scored", Context: 512, Literal: true, begin: beginWindow, second: true,
		minimum: 2},
	{Name: "gptq", Doc: "disjoint windows, all but the first token scored", Context: 2048, begin: beginText, minimum: 1},
	{Name: "strided", Doc: "windows that overlap by half, each token scored once", Context: 1024, begin: beginText, overlap: true, minimum: 1},
	{Name: "all", Doc: "the windows of llama.cpp, all but the first token scored", Context: 512, Literal: true, begin: beginWindow,
		minimum: 1},
}

// MethodNames returns the names of all methods.
func MethodNames() []string {
	var names []string
	for _, m := range methods {
		names = append(names, m.Name)
	}
	return names
}

// LookupMethod finds a method by its name.
func LookupMethod(name string) (Method, error) {
	i := slices.IndexFunc(methods, func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, naming.Unknown("method", name, MethodNames())
	}
	return methods[i], nil
}

// A Window is a part of a text that a model reads by itself.
type Window struct {
	Tokens []int32

	// First is the index of the first token that is scored. All tokens after it are scored, too.
	// At least one token precedes it.
	First int
}

// Scored returns the number of scored tokens.
func (w Window) Scored() int { return len(w.Tokens) - w.First }

// ErrShort is the error of a text without a window, and what to do.
var ErrShort = errors.New("use a longer text")

// Windows cuts a text into windows of context tokens. bos is the token that begins a text, or a
// negative number if the vocabulary adds none; tokens do not contain it yet. The windows are parts of tokens,
// which may have a hundred million elements: the caller must not use them afterwards.
func (m Method) Windows(tokens []int32, context int, bos int32) ([]Window, error) {
	least := 2 // one to score, and one before it
	if m.second {
		least = 3
	}
	if context < least {
		return nil, fmt.Errorf("method %s: a window of %s: want at least %d", m.Name, count(context, "token"), least)
	}
	text := tokens
	if bos >= 0 {
		text = slices.Insert(text, 0, bos)
	}
	if need := m.minimum * context; len(text) < need && (!m.overlap || len(text) < 2) {
		if m.overlap {
			need = 2
		}
		return nil, fmt.Errorf("the text has %s, want at least %d: %w", count(len(text), "token"), need, ErrShort)
	}
	if m.overlap {
		return overlapping(text, context), nil
	}
	var windows []Window
	for at := 0; at+context <= len(text); at += context {
		w := Window{Tokens: text[at : at+context : at+context], First: 1}
		if m.second {
			w.First = context/2 + 1
		}
		if bos >= 0 && m.begin == beginWindow {
			w.Tokens[0] = bos
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// overlapping returns windows that start every context/2 tokens. Each scores the tokens that no
// window before it has.
func overlapping(text []int32, context int) []Window {
	var windows []Window
	scored := 1 // nothing predicts the first token
	for at := 0; scored < len(text); at += context / 2 {
		end := min(at+context, len(text))
		windows = append(windows, Window{Tokens: text[at:end:end], First: scored - at})
		scored = end
	}
	return windows
}

// count returns a number and a noun, in the plural unless n is 1.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
