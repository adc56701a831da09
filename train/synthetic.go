package train

import (
	"math/rand/v2"
	"strings"
)

const syntheticSize = 1 << 20

// synthesize returns size bytes of text with structure to learn: common and rare words of syllables,
// sentences of a small grammar whose verbs agree with their subjects, and correct sums.
func synthesize(size int) []byte {
	g := &generator{source: rand.NewPCG(0x6d6963726f, 0x7363616c65)}
	for range 120 {
		g.nouns = append(g.nouns, g.newWord(2))
	}
	for range 60 {
		g.verbs = append(g.verbs, g.newWord(1)+"t")
		g.adjectives = append(g.adjectives, g.newWord(1)+"ic")
	}
	var b strings.Builder
	for b.Len() < size {
		for range 3 + g.below(5) {
			sentence := g.sentence()
			b.WriteString(strings.ToUpper(sentence[:1]) + sentence[1:] + ". ")
		}
		b.WriteString("\n")
	}
	return []byte(b.String()[:size])
}

type generator struct {
	source                   *rand.PCG
	nouns, verbs, adjectives []string
}

func (g *generator) below(n int) int { return int(g.source.Uint64() >> 33 % uint64(n)) }

// newWord returns a word of syllables: consonant, vowel, and often a consonant at the end.
func (g *generator) newWord(syllables int) string {
	var b strings.Builder
	for range syllables {
		b.WriteString([]string{"b", "d", "f", "gr", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v"}[g.below(15)])
		b.WriteString([]string{"a", "e", "i", "o", "u", "ea"}[g.below(6)])
	}
	b.WriteString([]string{"", "l", "n", "r", "s"}[g.below(5)])
	return b.String()
}

// pick returns a word, the first ones most often.
func (g *generator) pick(words []string) string {
	return words[g.below(1+g.below(len(words)))]
}

// number has the names of the numbers in sums.
var number = []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
	"fourteen", "fifteen", "sixteen", "seventeen", "eighteen"}

func (g *generator) sentence() string {
	switch g.below(8) {
	case 0:
		a, b := g.below(10), g.below(10)
		return number[a] + " and " + number[b] + " make " + number[a+b]
	case 1:
		return "if " + g.clause() + ", then " + g.clause()
	case 2:
		return g.clause() + ", and " + g.clause()
	}
	return g.clause()
}

// clause returns a subject, a verb that agrees with it, and in most cases an object.
func (g *generator) clause() string {
	subject, plural := g.phrase()
	verb := g.pick(g.verbs)
	if !plural {
		verb += "s"
	}
	if g.below(4) == 0 {
		return subject + " " + verb
	}
	object, _ := g.phrase()
	return subject + " " + verb + " " + object
}

// phrase returns a noun with article and adjective.
func (g *generator) phrase() (text string, plural bool) {
	noun := g.pick(g.nouns)
	plural = g.below(3) == 0
	text = "the "
	if plural {
		noun += "en"
		text = "many "
	}
	if g.below(3) == 0 {
		text += g.pick(g.adjectives) + " "
	}
	return text + noun, plural
}
