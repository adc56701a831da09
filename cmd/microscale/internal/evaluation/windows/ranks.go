package windows

import (
	"encoding/binary"
	"fmt"
)

// Share returns the windows of a rank of several, in the order of calibration.Collector: the last rank has the first windows.
func Share(windows []Window, rank, ranks int) []Window {
	n := len(windows)
	return windows[(ranks-1-rank)*n/ranks : (ranks-rank)*n/ranks]
}

// kept returns the number of earlier layers whose residual streams are kept. A rank may be that far ahead of the first, whose sums of a
// layer are lost if the job is killed.
func (w *walk) kept() int {
	if w.Ranks == nil {
		return 0
	}
	return w.Ranks.Size() - 1
}

// agree returns the state of the last layer that all ranks completed.
func (w *walk) agree(st state) (state, error) {
	if w.Ranks == nil {
		return st, nil
	}
	all, err := w.Ranks.GatherAll(binary.AppendVarint(nil, int64(st.Layers)))
	if err != nil {
		return st, err
	}
	least := st.Layers
	for _, data := range all {
		layers, _ := binary.Varint(data)
		least = min(least, int(layers))
	}
	if least == st.Layers {
		return st, nil
	}
	back := st.Layers - least
	switch {
	case least < 0:
		st.Layers, st.Sums, st.Before = least, nil, nil
	case back > len(st.Before):
		return st, fmt.Errorf("%s: it is %d layers ahead of another rank, more than it can go back: remove the directories of all ranks, and "+
			"begin again", w.Stream.Dir, back)
	default:
		st.Layers, st.Sums, st.Before = least, st.Before[back-1], st.Before[back:]
	}
	return st, w.Stream.save(st)
}
