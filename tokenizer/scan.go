package tokenizer

import "unicode/utf8"

// Patterns that look ahead further than one character. They divide a run of digits into groups of three
// from its end. Scanners find their matches.
const (
	digitGroups     = `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`
	wordDigitGroups = `\d{1,3}(?=(?:\d{3})*\b)` // not if a letter follows the run
	digitBoundaries = `(?=(\d{3})+(?!\d))`      // empty matches: the first one or two digits stay with the text before
)

// scanners find matches as pattern.find does. Those of digitBoundaries are the groups after the empty matches.
var scanners = map[string]func(text string, at int) (from, to int){
	digitGroups:     digitScanner{digits: numbers}.find,
	wordDigitGroups: digitScanner{digits: decimals, word: true}.find,
	digitBoundaries: digitScanner{digits: decimals, whole: true}.find,
}

type digitScanner struct {
	digits runeSet
	word   bool // a run with a letter after it has no groups
	whole  bool // only groups of three
}

const groupSize = 3

func (s digitScanner) find(text string, at int) (from, to int) {
	if r, _ := utf8.DecodeLastRuneInString(text[:at]); at > 0 && s.digits.has(r) {
		if to := s.skip(text, at, groupSize); to > at { // within a run, of which whole groups are left
			return at, to
		}
	}
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !s.digits.has(r) {
			at += size
			continue
		}
		n, end := s.run(text, at)
		first := (n-1)%groupSize + 1
		switch {
		case s.word && beginsWithWord(text[end:]), s.whole && n < groupSize:
			at = end
			continue
		case s.whole && first < groupSize:
			at = s.skip(text, at, first)
			first = groupSize
		}
		return at, s.skip(text, at, first)
	}
	return -1, -1
}

// run returns the number of digits from a position on, and their end.
func (s digitScanner) run(text string, at int) (n, end int) {
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !s.digits.has(r) {
			break
		}
		at += size
		n++
	}
	return n, at
}

// skip returns the end of up to n digits.
func (s digitScanner) skip(text string, at, n int) int {
	for ; n > 0 && at < len(text); n-- {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !s.digits.has(r) {
			break
		}
		at += size
	}
	return at
}
