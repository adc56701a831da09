package ranks

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
)

// A setting is what all ranks of a job must have in common. Otherwise they would wait for messages that
// no rank sends.
type setting struct{ Name, Value string }

// own are the flags that ranks may set to different values.
var own = map[string]bool{"threads": true, libraryFlag: true, "config": true}

// settings returns the settings of a command line: the version of the program, the command, and the
// values of all flags.
func settings(cmd *cobra.Command) []setting {
	list := []setting{{"the version", version()}, {"the command", cmd.CommandPath()}}
	for _, f := range flags.FlagValues(cmd) {
		if !own[f.Name] {
			list = append(list, setting{"--" + f.Name, f.Value})
		}
	}
	return list
}

// version returns the version of the program, with a checksum of its file if other programs may have
// the same version.
func version() string {
	path, err := os.Executable()
	if err != nil {
		return show.Version()
	}
	return versionOf(show.Version(), path)
}

// versionOf is version for the program in a file.
func versionOf(version, path string) string {
	if version != "devel" && version != "unknown" && !strings.HasSuffix(version, "+dirty") {
		return version
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return version
	}
	return fmt.Sprintf("%s, SHA-256 %x", version, sha256.Sum256(program))
}

// A greeting is the first message of a rank to the others.
type greeting struct {
	Settings []setting
	Error    json.RawMessage `json:",omitempty"` // of its command line, as comm.EncodeError returns it
}

// handshake returns an error on every rank of an MPI job unless all have the same settings. own is an error of
// the command line of this rank, which handshake returns. The others return that of the first such rank.
func (j *Job) handshake(cmd *cobra.Command, own error) error {
	text, err := json.Marshal(greeting{settings(cmd), comm.EncodeError(own)})
	if err != nil {
		return err
	}
	all, err := j.world.GatherAll(text)
	if err != nil {
		j.abort(err)
	}
	if own != nil {
		return own
	}
	lists := make([][]setting, len(all))
	for rank, text := range all {
		var g greeting
		if err := json.Unmarshal(text, &g); err != nil {
			return fmt.Errorf("the settings of rank %d: %w", rank, err)
		}
		if err := comm.DecodeError(g.Error); err != nil {
			return &comm.RankError{Rank: rank, Err: err}
		}
		lists[rank] = g.Settings
	}
	return difference(lists)
}

// difference returns an error that names the first difference between the settings of ranks.
func difference(lists [][]setting) error {
	for rank, list := range lists {
		for i, s := range list[:min(len(list), len(lists[0]))] {
			if first := lists[0][i]; first != s {
				return fmt.Errorf("the ranks of the job differ: %s is %q on rank 0 and %q on rank %d: start all with the same program and command",
					s.Name, first.Value, s.Value, rank)
			}
		}
		if len(list) != len(lists[0]) {
			return fmt.Errorf("the ranks of the job differ: rank %d has other flags than rank 0: start all with the same program and command", rank)
		}
	}
	return nil
}
