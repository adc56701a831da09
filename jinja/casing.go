package jinja

import (
	"slices"
	"strings"
	"unicode"
)

// This file has the case mappings and character properties of Python's str. Package unicode lacks
// mappings to several characters, the final sigma, and the digits outside category Nd.

// longerCases lists characters with their upper and title case, where the title case has several
// characters. It is from SpecialCasing.txt of Unicode 14.
var longerCases = strings.Fields("" +
	"ß SS Ss ŉ ʼN ʼN ǰ J\u030c J\u030c ΐ Ι\u0308\u0301 Ι\u0308\u0301 ΰ Υ\u0308\u0301 Υ\u0308\u0301 և ԵՒ Եւ " +
	"ẖ H\u0331 H\u0331 ẗ T\u0308 T\u0308 ẘ W\u030a W\u030a ẙ Y\u030a Y\u030a ẚ Aʾ Aʾ \u1f50 Υ\u0313 Υ\u0313 " +
	"\u1f52 Υ\u0313\u0300 Υ\u0313\u0300 \u1f54 Υ\u0313\u0301 Υ\u0313\u0301 \u1f56 Υ\u0313\u0342 Υ\u0313\u0342 " +
	"\u1fb2 \u1fbaΙ \u1fba\u0345 \u1fb4 ΆΙ Ά\u0345 \u1fb6 Α\u0342 Α\u0342 \u1fb7 Α\u0342Ι Α\u0342\u0345 " +
	"\u1fc2 \u1fcaΙ \u1fca\u0345 \u1fc4 ΉΙ Ή\u0345 \u1fc6 Η\u0342 Η\u0342 \u1fc7 Η\u0342Ι Η\u0342\u0345 " +
	"\u1fd2 Ι\u0308\u0300 Ι\u0308\u0300 \u1fd3 Ι\u0308\u0301 Ι\u0308\u0301 \u1fd6 Ι\u0342 Ι\u0342 " +
	"\u1fd7 Ι\u0308\u0342 Ι\u0308\u0342 \u1fe2 Υ\u0308\u0300 Υ\u0308\u0300 \u1fe3 Υ\u0308\u0301 Υ\u0308\u0301 " +
	"\u1fe4 Ρ\u0313 Ρ\u0313 \u1fe6 Υ\u0342 Υ\u0342 \u1fe7 Υ\u0308\u0342 Υ\u0308\u0342 " +
	"\u1ff2 \u1ffaΙ \u1ffa\u0345 \u1ff4 ΏΙ Ώ\u0345 \u1ff6 Ω\u0342 Ω\u0342 \u1ff7 Ω\u0342Ι Ω\u0342\u0345 " +
	"\ufb00 FF Ff \ufb01 FI Fi \ufb02 FL Fl \ufb03 FFI Ffi \ufb04 FFL Ffl \ufb05 ST St \ufb06 ST St " +
	"\ufb13 ՄՆ Մն \ufb14 ՄԵ Մե \ufb15 ՄԻ Մի \ufb16 ՎՆ Վն \ufb17 ՄԽ Մխ")

// longer maps the characters of longerCases to their position.
var longer = func() map[string]int {
	at := map[string]int{}
	for i := 0; i < len(longerCases); i += 3 {
		at[longerCases[i]] = i
	}
	return at
}()

// upperOf returns the upper case of a character.
func upperOf(r rune) string {
	if i, ok := longer[string(r)]; ok {
		return longerCases[i+1]
	}
	switch { // Greek vowels with an iota below, which is a letter in upper case
	case r >= 0x1f80 && r < 0x1fb0:
		return string([]rune{0x1f08, 0x1f28, 0x1f68}[(r-0x1f80)/16]+r%8) + "Ι"
	case r == 0x1fb3 || r == 0x1fbc:
		return "ΑΙ"
	case r == 0x1fc3 || r == 0x1fcc:
		return "ΗΙ"
	case r == 0x1ff3 || r == 0x1ffc:
		return "ΩΙ"
	}
	return string(unicode.ToUpper(r))
}

func titleOf(r rune) string {
	if i, ok := longer[string(r)]; ok {
		return longerCases[i+2]
	}
	return string(unicode.ToTitle(r))
}

// foldOf returns the case folding of a character.
func foldOf(r rune) string {
	switch {
	case r == 'ı':
		return "ı"
	case r == 'ẞ':
		return "ss"
	case unicode.Is(unicode.Cherokee, r):
		return string(unicode.ToUpper(r))
	}
	return lower(upperOf(r))
}

// replacedRunes returns s with each character replaced.
func replacedRunes(s string, replacement func(r rune) string) string {
	var out strings.Builder
	for _, r := range s {
		out.WriteString(replacement(r))
	}
	return out.String()
}

func upper(s string) string { return replacedRunes(s, upperOf) }

func lower(s string) string { return recased(s, func(rune, bool) letterCase { return lowerCase }) }

func casefolded(s string) string { return replacedRunes(s, foldOf) }

// A letterCase is a case that a character may get.
type letterCase int

const (
	lowerCase letterCase = iota
	upperCase
	titleCase
	unchanged
)

// recased returns s with the cases that a function chooses for each character, and whether the
// character before has case. The function runs in the order of the characters.
func recased(s string, choose func(r rune, afterCased bool) letterCase) string {
	runes := []rune(s)
	var out strings.Builder
	for i, r := range runes {
		switch choose(r, i > 0 && isCased(runes[i-1])) {
		case upperCase:
			out.WriteString(upperOf(r))
		case titleCase:
			out.WriteString(titleOf(r))
		case unchanged:
			out.WriteRune(r)
		case lowerCase:
			switch {
			case r == 'İ':
				out.WriteString("i\u0307")
			case r == 'Σ' && endsWord(runes, i):
				out.WriteRune('ς')
			default:
				out.WriteRune(unicode.ToLower(r))
			}
		}
	}
	return out.String()
}

// endsWord reports whether the sigma at i is the last letter of a word with several.
func endsWord(runes []rune, i int) bool {
	counts := func(r rune) bool { return !isCaseIgnorable(r) }
	after := slices.IndexFunc(runes[i+1:], counts)
	if after >= 0 && isCased(runes[i+1+after]) {
		return false
	}
	for i--; i >= 0; i-- {
		if counts(runes[i]) {
			return isCased(runes[i])
		}
	}
	return false
}

// isCaseIgnorable reports whether r has no influence on whether a sigma is final.
func isCaseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·\u0387՟״‘’․‧︓﹒﹕＇．：", r)
}

func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Other_Uppercase) }

func isLower(r rune) bool { return unicode.In(r, unicode.Ll, unicode.Other_Lowercase) }

func isCased(r rune) bool { return isUpper(r) || isLower(r) || unicode.IsTitle(r) }

// hasOnly reports whether s has characters with the case, and none with another case.
func hasOnly(s string, is func(rune) bool) bool {
	return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, func(r rune) bool { return isCased(r) && !is(r) })
}

func swapCase(s string) string {
	return recased(s, func(r rune, _ bool) letterCase {
		switch {
		case isUpper(r):
			return lowerCase
		case isLower(r):
			return upperCase
		}
		return unchanged
	})
}

// capitalized returns s with its first character in title case and the others in lower case.
func capitalized(s string) string {
	first := true
	return recased(s, func(rune, bool) letterCase {
		if first {
			first = false
			return titleCase
		}
		return lowerCase
	})
}

// titled returns s with runs of letters capitalized.
func titled(s string) string {
	return recased(s, func(_ rune, afterCased bool) letterCase {
		if afterCased {
			return lowerCase
		}
		return titleCase
	})
}

// digits are the digits outside category Nd, such as ² and ①.
var digits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1}, {0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1}, {0x24ea, 0x24ea, 1},
		{0x24f5, 0x24fd, 1}, {0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1}, {0x278a, 0x2792, 1},
	},
	R32:         []unicode.Range32{{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1}},
	LatinOffset: 2,
}

// numerals are the ideographs that are numbers.
const numerals = "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零\uf96b\uf973\uf978\uf9b2\uf9d1\uf9d3\uf9fd" +
	"\U00020001\U00020064\U000200e2\U00020121\U0002092a\U00020983\U0002098c\U0002099c\U00020aea\U00020afd" +
	"\U00020b19\U00022390\U00022998\U00023b1b\U0002626d\U0002f890"

func isDigit(r rune) bool { return unicode.IsDigit(r) || unicode.Is(digits, r) }

func isNumeric(r rune) bool { return unicode.IsNumber(r) || strings.ContainsRune(numerals, r) }

func isAlphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
