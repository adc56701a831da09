package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A decoder is how tokens become bytes.
type decoder struct {
	byteLevel   bool
	replacement string // of spaces; SentencePiece's
	fallback    bool   // tokens such as <0x0A> are bytes
	strip       strip
}

// A strip says which spaces at the beginning of a text are left out.
type strip int

const (
	stripNone  strip = iota
	stripOne         // one space, of the first token that has text
	stripToken       // all spaces of the first token
)

// A Stream decodes tokens one after the other.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	held        []byte // the beginning of a character
	holdRuns    bool   // hold byte tokens until another token follows: one that is not UTF-8 makes all of them U+FFFD
	begun       bool   // there was text
}

// Stream returns a decoder of a text that begins with the next token. With skipSpecial, special
// tokens are left out.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Next returns the text that a token adds: whole characters. Bytes that begin a character are
// held back until a later token completes it.
func (s *Stream) Next(id uint32) (string, error) {
	token, err := s.t.Token(id)
	if err != nil {
		return "", err
	}
	if s.skipSpecial && s.t.special[id] {
		return "", nil
	}
	d := &s.t.decoder
	if d.byteLevel {
		s.held = appendBytes(s.held, token)
		whole := wholeCharacters(s.held)
		text := toValid(s.held[:whole])
		s.held = append(s.held[:0], s.held[whole:]...)
		return text, nil
	}
	if b, ok := byteToken(token); ok && d.fallback {
		s.held = append(s.held, b)
		if s.holdRuns || !utf8.Valid(s.held) {
			return "", nil
		}
		return s.End(), nil
	}
	return s.End() + s.strip(strings.ReplaceAll(token, d.replacement, " ")), nil
}

// strip leaves out spaces at the beginning of the text.
func (s *Stream) strip(text string) string {
	if s.begun {
		return text
	}
	switch s.t.decoder.strip {
	case stripOne:
		s.begun = text != ""
		return strings.TrimPrefix(text, " ")
	case stripToken:
		s.begun = true
		return strings.ReplaceAll(text, " ", "")
	}
	s.begun = true
	return text
}

// End returns the text of bytes that were held back: U+FFFD for what is not UTF-8. More
// tokens may follow.
func (s *Stream) End() string {
	held := s.held
	s.held = s.held[:0]
	if len(held) == 0 {
		return ""
	}
	switch {
	case s.t.decoder.byteLevel:
		return toValid(held)
	case utf8.Valid(held):
		return s.strip(string(held))
	}
	return s.strip(strings.Repeat("\ufffd", len(held)))
}

// wholeCharacters returns the bytes of b before a character that more bytes could complete.
func wholeCharacters(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if !utf8.FullRune(b[len(b)-i:]) {
			return len(b) - i
		}
	}
	return len(b)
}

// toValid replaces what is not UTF-8: each longest beginning of a character, and each other byte,
// by one U+FFFD, as Unicode recommends ("substitution of maximal subparts").
func toValid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < len(b) && !utf8.FullRune(b[:size+1]) {
				size++
			}
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

// byteToken returns the byte that a token of byte fallback stands for.
func byteToken(token string) (byte, bool) {
	if len(token) != len("<0x00>") || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// byteRunes are the characters that stand for bytes in the vocabularies of byte-level BPE:
// printable ones for themselves, and others from U+0100 on.
var byteRunes, runeBytes = func() (runes [256]rune, bytes map[rune]byte) {
	bytes = map[rune]byte{}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !('!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ') {
			r = next
			next++
		}
		runes[b], bytes[r] = r, byte(b)
	}
	return runes, bytes
}()

// appendBytes appends the bytes of a token of byte-level BPE: those that its characters stand
// for, or its own where one stands for none.
func appendBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		b, ok := runeBytes[r]
		if !ok {
			return append(dst[:n], token...)
		}
		dst = append(dst, b)
	}
	return dst
}
