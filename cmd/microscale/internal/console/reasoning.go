package console

import "github.com/microscale-go/microscale/cmd/microscale/internal/show"

// A reasoningWriter writes the reasoning of an answer between lines that name it; at a terminal, it is dim.
type reasoningWriter struct {
	text show.TextWriter
	open bool
}

// Lines around reasoning, and sequences of terminals (ECMA-48, SGR 2 and 22).
const (
	reasoningBegins = "Reasoning:\n"
	reasoningEnds   = "Answer:\n"
	dim             = "\x1b[2m"
	notDim          = "\x1b[22m"
)

func (r *reasoningWriter) write(text string) {
	if text == "" {
		return
	}
	if !r.open {
		r.open = true
		r.mark(dim, reasoningBegins)
	}
	r.text.Write([]byte(text))
}

// end ends the reasoning, if any was written.
func (r *reasoningWriter) end() {
	if r.open {
		r.open = false
		r.text.End()
		r.mark(notDim, reasoningEnds)
	}
}

// mark writes a sequence at a terminal, and a line elsewhere.
func (r *reasoningWriter) mark(sequence, line string) {
	mark := show.TextWriter{W: r.text.W}
	if r.text.Escape {
		line = sequence
	}
	mark.Write([]byte(line))
}
