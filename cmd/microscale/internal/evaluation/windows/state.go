package windows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// streamState is the name of the file with the state of a stream: the CRC-64 of a JSON document, and
// that document.
const streamState = "state.json"

// maxState is the maximum size of a state in bytes. One with the errors of ten models of a hundred
// layers has a megabyte.
const maxState = 256 << 20

// A state is what a stream saves after a layer.
type state struct {
	Key    map[string]string `json:"key"`
	Layers int               `json:"layers"`           // that all windows passed; -1: none, and no activations yet
	Sums   []uint64          `json:"sums,omitempty"`   // checksums of the files of activations, by stack
	Before [][]uint64        `json:"before,omitempty"` // those after earlier layers, whose files are kept: from the last one on
	Errors [][]LayerErrors   `json:"errors"`
	Amaxes *Amaxes           `json:"amaxes,omitempty"`
	Time   time.Duration     `json:"time"`            // of all runs until then
	Given  bool              `json:"given,omitempty"` // the directory existed before the first run
}

// line returns the content of the file of a state.
func (st state) line() ([]byte, error) {
	data, err := json.Marshal(st)
	return append(fmt.Appendf(nil, "%016x ", checksum.Of(data)), data...), err
}

// parseState returns the state in the content of a file.
func parseState(line []byte) (st state, err error) {
	sum, data, _ := strings.Cut(string(line), " ")
	want, err := strconv.ParseUint(sum, 16, 64)
	if err != nil || checksum.Of([]byte(data)) != want {
		return st, errors.New("damaged, or not the state of an evaluation")
	}
	err = json.Unmarshal([]byte(data), &st)
	return st, err
}

// readState returns the state in the directory. The error is fs.ErrNotExist without one.
func (s *Stream) readState() (st state, err error) {
	name := filepath.Join(s.Dir, streamState)
	line, err := limits.ReadFile(name, maxState)
	if err == nil {
		if st, err = parseState(line); err == nil {
			return st, nil
		}
	}
	return st, fmt.Errorf("%s: %w: remove the directory, or name another", name, limits.Cause(err))
}

// begin writes the first state, or reads that of an interrupted run.
func (s *Stream) begin(given bool) (st state, err error) {
	st, err = s.readState()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if others, err := os.ReadDir(s.Dir); err != nil || len(slices.DeleteFunc(others, isTemporary)) > 0 {
			return st, errors.Join(err, fmt.Errorf("%s: the directory is not empty and holds no interrupted evaluation: name another", s.Dir))
		}
		st = state{Key: s.Key, Layers: -1, Given: given}
		return st, s.save(st)
	case err != nil:
		return st, err
	}
	if other := differences(st.Key, s.Key); len(other) > 0 {
		return st, fmt.Errorf("%s: holds an interrupted evaluation with another %s: repeat that one, remove the directory, or name another",
			s.Dir, strings.Join(other, " and another "))
	}
	return st, nil
}

// differences returns the keys whose values differ, sorted.
func differences(a, b map[string]string) (keys []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if a[key] != b[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// isTemporary reports whether a file is one that a run was killed while writing.
func isTemporary(e fs.DirEntry) bool { return durable.IsTemporary(e.Name()) }

// Completed returns the number of layers that interrupted runs of the same evaluation completed.
func (s *Stream) Completed() int {
	st, err := s.readState()
	if err != nil || len(differences(st.Key, s.Key)) > 0 {
		return 0 // Do reports the error
	}
	return max(0, st.Layers)
}

// save replaces the state. It is durable when save returns.
func (s *Stream) save(st state) error {
	line, err := st.line()
	if err != nil {
		return err
	}
	return durable.WriteWhole(filepath.Join(s.Dir, streamState), line, os.Rename)
}
