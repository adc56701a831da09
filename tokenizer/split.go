package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A splitter is a pre-tokenizer: it divides text into words. first says that the text is the
// beginning of the whole text.
type splitter interface {
	split(text string, first bool, yield func(word string))
}

// split divides text by one splitter after the other.
func split(splitters []splitter, text string, first bool, yield func(word string)) {
	if text == "" {
		return
	}
	if len(splitters) == 0 {
		yield(text)
		return
	}
	splitters[0].split(text, first, func(word string) {
		split(splitters[1:], word, first, yield)
		first = false
	})
}

// A behavior says what becomes of the matches of a pattern.
type behavior int

const (
	isolated           behavior = iota // a word each
	removed                            // left out
	mergedWithPrevious                 // the end of the word before
	mergedWithNext                     // the beginning of the word after
	contiguous                         // a word together with the matches beside it
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// A patternSplit divides text where a pattern matches.
type patternSplit struct {
	find     func(text string, at int) (from, to int)
	behavior behavior
	invert   bool // what lies between matches counts as match, and the reverse
}

func (s patternSplit) split(text string, _ bool, yield func(word string)) {
	start := 0           // of the word that is open
	openIsMatch := false // of contiguous
	emit := func(to int) {
		if to > start {
			yield(text[start:to])
		}
		start = to
	}
	part := func(from, to int, isMatch bool) {
		if from == to {
			return
		}
		switch s.behavior {
		case isolated:
			emit(from)
			emit(to)
		case removed:
			if emit(from); isMatch {
				start = to
			} else {
				emit(to)
			}
		case mergedWithPrevious:
			if isMatch {
				emit(to)
			} else {
				emit(from)
			}
		case mergedWithNext:
			if isMatch {
				emit(from)
			}
		case contiguous:
			if isMatch != openIsMatch {
				emit(from)
			}
			openIsMatch = isMatch
		}
	}
	at := 0
	for {
		from, to := s.find(text, at)
		if from < 0 {
			break
		}
		part(at, from, s.invert)
		part(from, to, !s.invert)
		at = to
	}
	part(at, len(text), s.invert)
	emit(len(text))
}

// findText returns a search for a text.
func findText(what string) func(text string, at int) (from, to int) {
	return func(text string, at int) (from, to int) {
		i := strings.Index(text[at:], what)
		if i < 0 || what == "" {
			return -1, -1
		}
		return at + i, at + i + len(what)
	}
}

// findDigit finds a numeric character: Nd, Nl or No.
func findDigit(text string, at int) (from, to int) {
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if numbers.has(r) {
			return at, at + size
		}
		at += size
	}
	return -1, -1
}

// A prefixSpace is the option add_prefix_space of ByteLevel.
type prefixSpace struct{}

func (prefixSpace) split(text string, _ bool, yield func(word string)) {
	if !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	yield(text)
}

// A metaspace writes spaces as another character, ▁, and puts one before the text.
type metaspace struct {
	replacement string
	scheme      string // always, first, never
	words       bool   // divide the text before each replacement
}

func (m metaspace) split(text string, first bool, yield func(word string)) {
	text = strings.ReplaceAll(text, " ", m.replacement)
	if (m.scheme == "always" || m.scheme == "first" && first) && !strings.HasPrefix(text, m.replacement) {
		text = m.replacement + text
	}
	if !m.words {
		yield(text)
		return
	}
	patternSplit{find: findText(m.replacement), behavior: mergedWithNext}.split(text, first, yield)
}

// newSplitter returns the splitters of a pre-tokenizer that is no sequence.
func newSplitter(s *step) ([]splitter, error) {
	switch s.Type {
	case "Split":
		b, ok := behaviors[s.Behavior]
		if !ok {
			return nil, fmt.Errorf("unknown behavior %q of Split", s.Behavior)
		}
		find, err := s.finder()
		if err != nil {
			return nil, err
		}
		return []splitter{patternSplit{find, b, s.Invert}}, nil
	case "Digits":
		b := contiguous
		if s.IndividualDigits {
			b = isolated
		}
		return []splitter{patternSplit{find: findDigit, behavior: b}}, nil
	case "ByteLevel":
		var all []splitter
		if s.AddPrefixSpace {
			all = append(all, prefixSpace{})
		}
		if s.UseRegex == nil || *s.UseRegex {
			p, err := compile(gpt2Words)
			if err != nil {
				return nil, err
			}
			all = append(all, patternSplit{find: p.find, behavior: isolated})
		}
		return all, nil
	case "Metaspace":
		m := metaspace{s.Replacement, s.PrependScheme, s.Split == nil || *s.Split}
		switch {
		case m.scheme == "" && s.AddPrefixSpace: // files before there were schemes
			m.scheme = "always"
		case m.scheme == "":
			m.scheme = "never"
		case m.scheme != "always" && m.scheme != "first" && m.scheme != "never":
			return nil, fmt.Errorf("unknown scheme %q of Metaspace", m.scheme)
		}
		return []splitter{m}, nil
	}
	return nil, fmt.Errorf("unknown pre-tokenizer %q", s.Type)
}
