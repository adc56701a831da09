package nn

import "github.com/microscale-go/microscale/tensor"

// An Arena reuses the memory of matrices between modules. It has two halves: what attention allocates
// stays valid while the feed-forward network after it runs, and so on. The zero value is empty; a nil
// *Arena allocates new memory.
type Arena struct {
	halves  [2]arenaHalf
	current int
}

// An arenaHalf is memory of which the first used elements are in use.
type arenaHalf struct {
	data   []float32
	used   int
	wanted int // including what did not fit
}

// Turn makes the other half current and frees what it holds. Call it before attention and before the
// feed-forward network.
func (a *Arena) Turn() {
	if a == nil {
		return
	}
	a.current ^= 1
	h := &a.halves[a.current]
	if h.wanted > len(h.data) {
		h.data = make([]float32, h.wanted)
	}
	h.used, h.wanted = 0, 0
}

// Bytes returns the bytes that the arena holds.
func (a *Arena) Bytes() int { return 4 * (len(a.halves[0].data) + len(a.halves[1].data)) }

// arenaUnit is the number of elements that fill a cache line, where each matrix begins: kernels write
// whole lines without reading them.
const arenaUnit = 16

// Dense returns a matrix with undefined contents, valid until the second Turn.
func (a *Arena) Dense(rows, cols int) tensor.Dense {
	if a == nil {
		return tensor.New(rows, cols)
	}
	h, n := &a.halves[a.current], rows*cols
	space := (n + arenaUnit - 1) / arenaUnit * arenaUnit
	h.wanted += space
	if space > len(h.data)-h.used {
		return tensor.New(rows, cols)
	}
	m := tensor.Of(rows, cols, h.data[h.used:h.used+n:h.used+n])
	h.used += space
	return m
}
