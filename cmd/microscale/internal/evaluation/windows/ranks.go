package windows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Share returns the windows of a rank of several, in the order of calibration.Collector: the last rank has the first windows.
func Share(windows []Window, rank, ranks int) []Window {
	n := len(windows)
	return windows[(ranks-1-rank)*n/ranks : (ranks-rank)*n/ranks]
}

// RanksKey is the entry of Stream.Key with the number of ranks.
const RanksKey = "number of ranks"

// rankEnd is in the names of directories of ranks after the first, before the number.
const rankEnd = OwnName + "rank"

// RankDir returns the directory of the Stream of a rank after the first, whose directory is dir.
func RankDir(dir string, rank int) string { return dir + rankEnd + strconv.Itoa(rank) }

// ranks returns the ranks that have a directory beside that of the first.
func (s *Stream) ranks() (all []int, err error) {
	entries, err := os.ReadDir(filepath.Dir(s.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(s.Dir)+rankEnd)
		if rank, err := strconv.Atoi(number); ok && err == nil {
			all = append(all, rank)
		}
	}
	return all, err
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
