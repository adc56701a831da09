package tokenizer

import (
	"container/heap"
	"strings"
	"sync"
	"unicode/utf8"
)

// A bpe is a model of byte-pair encoding. A word begins as symbols: bytes, or characters. The
// pair of neighbors with the lowest rank is merged, the leftmost first, until no pair has one.
type bpe struct {
	merges map[[2]uint32]merge
	words  map[string]uint32 // tokens by their bytes or characters

	byteLevel    bool
	byteIDs      [256]uint32 // of single bytes; none where the vocabulary lacks it
	wholeWords   bool        // a word that is a token is not merged (ignore_merges)
	byteFallback bool        // byteIDs replace characters that are no tokens
	unknown      uint32      // replaces other characters; none: they are left out
	fuseUnknown  bool        // one unknown token for several in a row

	innerSpaces bool // a token may have a space after another character

	cache wordCache
}

// none marks a missing id or rank.
const none = ^uint32(0)

// A merge is the rank of a pair and the token that the pair becomes.
type merge struct{ rank, id uint32 }

// space is how SentencePiece writes a space.
const space = "▁"

// encode appends the ids of a word. Where no token has a space after another character, the
// parts of a long word between such places are encoded one by one.
func (m *bpe) encode(ids []uint32, word string) []uint32 {
	if m.wholeWords || m.innerSpaces {
		return m.encodeWord(ids, word)
	}
	for start := 0; start < len(word); {
		end := start
		for strings.HasPrefix(word[end:], space) {
			end += len(space)
		}
		if i := strings.Index(word[end:], space); i >= 0 {
			end += i
		} else {
			end = len(word)
		}
		ids = m.encodeWord(ids, word[start:end])
		start = end
	}
	return ids
}

func (m *bpe) encodeWord(ids []uint32, word string) []uint32 {
	if m.wholeWords {
		if id, ok := m.words[word]; ok {
			return append(ids, id)
		}
	}
	if known, ok := m.cache.get(word); ok {
		return append(ids, known...)
	}
	first := len(ids)
	ids = m.symbols(ids, word)
	n := m.mergeAll(ids[first:])
	ids = ids[:first+n]
	m.cache.put(word, ids[first:])
	return ids
}

// symbols appends the ids that a word begins as.
func (m *bpe) symbols(ids []uint32, word string) []uint32 {
	if m.byteLevel {
		for i := range len(word) {
			if id := m.byteIDs[word[i]]; id != none {
				ids = append(ids, id)
			}
		}
		return ids
	}
	wasUnknown := false
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		char := word[at : at+size]
		at += size
		id, ok := m.words[char]
		switch {
		case ok:
			ids = append(ids, id)
		case m.byteFallback && m.hasBytes(char):
			for i := range len(char) {
				ids = append(ids, m.byteIDs[char[i]])
			}
		case m.unknown != none && !(m.fuseUnknown && wasUnknown):
			ids = append(ids, m.unknown)
		}
		wasUnknown = !ok && !(m.byteFallback && m.hasBytes(char))
	}
	return ids
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.byteIDs[char[i]] == none {
			return false
		}
	}
	return true
}

// mergeAll merges symbols in place and returns their number afterwards.
func (m *bpe) mergeAll(ids []uint32) int {
	const few = 48 // symbols up to which a scan of all pairs is faster than a heap
	if len(ids) > few {
		return m.mergeLong(ids)
	}
	var ranks [few]merge // of symbol i and the next
	n := len(ids)
	for i := range n - 1 {
		ranks[i] = m.pair(ids[i], ids[i+1])
	}
	for n > 1 {
		best := 0
		for i := 1; i < n-1; i++ {
			if ranks[i].rank < ranks[best].rank {
				best = i
			}
		}
		if ranks[best].rank == none {
			break
		}
		ids[best] = ranks[best].id
		copy(ids[best+1:n-1], ids[best+2:n])
		copy(ranks[best:n-2], ranks[best+1:n-1])
		n--
		if best > 0 {
			ranks[best-1] = m.pair(ids[best-1], ids[best])
		}
		if best < n-1 {
			ranks[best] = m.pair(ids[best], ids[best+1])
		}
	}
	return n
}

func (m *bpe) pair(a, b uint32) merge {
	if p, ok := m.merges[[2]uint32{a, b}]; ok {
		return p
	}
	return merge{rank: none}
}

// A candidate is a pair that may be merged, by the positions of its symbols.
type candidate struct {
	merge
	left, right int
	a, b        uint32 // the symbols when it was found
}

// candidates is a heap by rank, then position.
type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].left < c[j].left
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }

// Push appends a candidate, for container/heap.
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }

// Pop removes the last candidate, for container/heap.
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// mergeLong is mergeAll for words of many symbols, such as whole texts without a pre-tokenizer.
func (m *bpe) mergeLong(ids []uint32) int {
	before, after := make([]int, len(ids)), make([]int, len(ids)) // neighbors of each symbol
	var queue candidates
	add := func(left, right int) {
		if p := m.pair(ids[left], ids[right]); p.rank != none {
			queue = append(queue, candidate{p, left, right, ids[left], ids[right]})
		}
	}
	for i := range ids {
		before[i], after[i] = i-1, i+1
		if i+1 < len(ids) {
			add(i, i+1)
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		if ids[c.left] != c.a || ids[c.right] != c.b || after[c.left] != c.right {
			continue // one of them is merged already
		}
		ids[c.left], ids[c.right] = c.id, none
		next := after[c.right]
		after[c.left] = next
		if next < len(ids) {
			before[next] = c.left
		}
		n := len(queue)
		if previous := before[c.left]; previous >= 0 {
			add(previous, c.left)
		}
		if next < len(ids) {
			add(c.left, next)
		}
		for ; n < len(queue); n++ { // at most two, of which neither is below the other unless they are all
			heap.Fix(&queue, n)
		}
	}
	n := 0
	for i := 0; i < len(ids); i = after[i] {
		ids[n] = ids[i]
		n++
	}
	return n
}

// A wordCache remembers the ids of short words.
type wordCache struct {
	mu    sync.RWMutex
	words map[string][]uint32
}

const (
	cachedWords  = 1 << 16
	longestWord  = 64 // bytes
	shortestWord = 2
)

func (c *wordCache) get(word string) ([]uint32, bool) {
	if len(word) > longestWord {
		return nil, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	ids, ok := c.words[word]
	return ids, ok
}

func (c *wordCache) put(word string, ids []uint32) {
	if len(word) > longestWord || len(word) < shortestWord {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.words == nil {
		c.words = map[string][]uint32{}
	}
	if len(c.words) < cachedWords {
		c.words[string([]byte(word))] = append([]uint32(nil), ids...)
	}
}
