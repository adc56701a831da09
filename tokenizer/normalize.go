package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer changes text before it is divided.
type normalizer interface{ normalize(text string) string }

// maxGrowth limits how many times as long as a text the normalizers can make it: SentencePiece's
// space has three bytes, and composing (NFC) makes some characters three times as long.
const maxGrowth = 64

// checkGrowth returns an error if the normalizers together can make a text too long.
func checkGrowth(list []normalizer) error {
	growth := 1.0
	for _, n := range list {
		switch n := n.(type) {
		case replace:
			growth *= max(1, n.growth())
		case nfc:
			growth *= 3
		}
	}
	if growth > maxGrowth {
		return fmt.Errorf("the normalizers can make a text %.3g times as long: want at most %d", growth, maxGrowth)
	}
	return nil
}

// growth returns how many times as long the longest result is as its text.
func (r replace) growth() float64 {
	if r.old == "" { // it stands before each character and at the end
		return 1 + float64(len(r.new))
	}
	return float64(len(r.new)) / float64(len(r.old))
}

type replace struct{ old, new string }

func (r replace) normalize(text string) string { return strings.ReplaceAll(text, r.old, r.new) }

type prepend struct{ text string }

func (p prepend) normalize(text string) string {
	if text == "" {
		return text
	}
	return p.text + text
}

type nfc struct{}

// maxMarks is the number of combining marks after a character up to which package norm composes
// text as Unicode defines it: characters decompose into a few marks each, and from 31 on the
// package inserts U+034F (Stream-Safe Text).
const maxMarks = 10

// notComposed are two characters that Unicode composes since version 13. Python's tokenizers has the
// composition of Unicode 12.
const notComposed = "\U00011935\U00011930"

func (n nfc) normalize(text string) string {
	if !strings.Contains(text, notComposed) {
		return n.compose(text)
	}
	var out strings.Builder
	first, _ := utf8.DecodeRuneInString(notComposed)
	size := utf8.RuneLen(first)
	for {
		i := strings.Index(text, notComposed)
		if i < 0 {
			out.WriteString(n.compose(text))
			return out.String()
		}
		out.WriteString(n.compose(text[:i+size]))
		text = text[i+size:]
	}
}

func (nfc) compose(text string) string {
	if norm.NFC.IsNormalString(text) {
		return text
	}
	var out strings.Builder
	short := 0 // where segments with few marks begin
	for at := 0; at < len(text); {
		n, marks := segment(text[at:])
		if marks > maxMarks {
			out.WriteString(norm.NFC.String(text[short:at]))
			out.WriteString(composeLong(text[at : at+n]))
			short = at + n
		}
		at += n
	}
	out.WriteString(norm.NFC.String(text[short:]))
	return out.String()
}

// segment returns the bytes of the first character and the marks that may combine with it, and
// the number of these.
func segment(text string) (n, marks int) {
	for n < len(text) {
		p := norm.NFC.PropertiesString(text[n:])
		if n > 0 && p.BoundaryBefore() {
			break
		}
		n += max(1, p.Size())
		marks++
	}
	return n, marks - 1
}

// composeLong is the canonical composition of Unicode (UAX #15) for any number of marks.
func composeLong(text string) string {
	type mark struct {
		char  rune
		class uint8
	}
	var marks []mark
	for _, r := range text {
		for _, d := range decompose(r) {
			marks = append(marks, mark{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(marks); { // marks between starters, by class
		j := i + 1
		for j < len(marks) && marks[j].class != 0 {
			j++
		}
		run := marks[i:j]
		if run[0].class == 0 {
			run = run[1:]
		}
		slices.SortStableFunc(run, func(a, b mark) int { return int(a.class) - int(b.class) })
		i = j
	}
	starter := -1
	var out []mark
	for _, m := range marks {
		blocked := false
		if starter >= 0 && starter < len(out)-1 {
			last := out[len(out)-1].class
			blocked = last == 0 || last >= m.class
		}
		if starter >= 0 && !blocked {
			if c := norm.NFC.String(string(out[starter].char) + string(m.char)); utf8.RuneCountInString(c) == 1 {
				out[starter].char, _ = utf8.DecodeRuneInString(c)
				continue
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	var b strings.Builder
	for _, m := range out {
		b.WriteRune(m.char)
	}
	return b.String()
}

func decompose(r rune) []rune {
	if d := norm.NFD.PropertiesString(string(r)).Decomposition(); d != nil {
		return []rune(string(d))
	}
	return []rune{r}
}

// newNormalizer returns a normalizer that is no sequence.
func newNormalizer(s *step) (normalizer, error) {
	switch s.Type {
	case "NFC":
		return nfc{}, nil
	case "Prepend":
		return prepend{s.Prepend}, nil
	case "Replace":
		p, err := s.pattern()
		if err != nil {
			return nil, err
		}
		if p.Regex != "" {
			return nil, fmt.Errorf("unknown normalizer: Replace by the pattern %q", p.Regex)
		}
		return replace{p.String, s.Content}, nil
	}
	return nil, fmt.Errorf("unknown normalizer %q", s.Type)
}
