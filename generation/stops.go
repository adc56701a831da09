package generation

import "strings"

// A stopper passes on text up to the first of its stop strings. It holds back text that may be the
// beginning of one.
type stopper struct {
	stops []string
	held  string
}

// next returns the text that may be written after more text, and whether a stop string was found.
func (s *stopper) next(text string) (out string, stopped bool) {
	s.held += text
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		out, s.held = s.held[:first], ""
		return out, true
	}
	keep := 0
	for _, stop := range s.stops {
		keep = max(keep, partial(s.held, stop))
	}
	out, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return out, false
}

// end returns the text that was held back.
func (s *stopper) end() string {
	out := s.held
	s.held = ""
	return out
}

// partial returns the length of the longest end of a text that begins a stop string, but is not all of it.
func partial(text, stop string) int {
	for n := min(len(stop)-1, len(text)); n > 0; n-- {
		if strings.HasPrefix(stop, text[len(text)-n:]) {
			return n
		}
	}
	return 0
}
