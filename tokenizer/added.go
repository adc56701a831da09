package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is text that becomes one token wherever it stands.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // not within a word
	LStrip     bool   `json:"lstrip"`      // with the white space before
	RStrip     bool   `json:"rstrip"`      // with the white space after
	Normalized bool   `json:"normalized"`  // look for it after normalization
	Special    bool   `json:"special"`
}

// A matcher finds added tokens: at the leftmost place the longest.
type matcher struct {
	byFirst [256][]addedToken // by their first byte, the longest first
	any     bool
}

func newMatcher(tokens []addedToken) (m matcher) {
	for _, t := range tokens {
		if t.Content != "" {
			m.byFirst[t.Content[0]] = append(m.byFirst[t.Content[0]], t)
			m.any = true
		}
	}
	for _, list := range m.byFirst {
		slices.SortStableFunc(list, func(a, b addedToken) int { return len(b.Content) - len(a.Content) })
	}
	return m
}

// split calls yield for each part of a text: a token, or what lies between tokens. With literal,
// special tokens are text.
func (m *matcher) split(text string, literal bool, yield func(part string, id uint32, isToken bool)) {
	start := 0 // of what no token has
	for at := 0; m.any && at < len(text); {
		t := m.at(text, at)
		if t == nil {
			at++
			continue
		}
		from, to := at, at+len(t.Content)
		at = to
		if literal && t.Special || t.SingleWord && (endsInWord(text[:from]) || beginsWithWord(text[to:])) || from < start {
			continue
		}
		if t.LStrip {
			from = max(start, len(strings.TrimRightFunc(text[:from], unicode.IsSpace)))
		}
		if t.RStrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
		}
		if from > start {
			yield(text[start:from], 0, false)
		}
		yield(text[from:to], t.ID, true)
		start = to
	}
	if start < len(text) {
		yield(text[start:], 0, false)
	}
}

// at returns the longest token at a position, or nil.
func (m *matcher) at(text string, at int) *addedToken {
	list := m.byFirst[text[at]]
	for i := range list {
		if strings.HasPrefix(text[at:], list[i].Content) {
			return &list[i]
		}
	}
	return nil
}

func endsInWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return text != "" && isWord(r)
}

func beginsWithWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return text != "" && isWord(r)
}

// isWord is \w of Unicode's regular expressions.
func isWord(r rune) bool { return wordCharacters.has(r) }
