package evaluation

import (
	"encoding/json"
	"fmt"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
)

// first reports whether this is the first rank, which writes the result.
func (e *Evaluation) first() bool { return e.Ranks == nil || e.Ranks.Rank() == 0 }

// ranks returns the number of ranks.
func (e *Evaluation) ranks() int {
	if e.Ranks == nil {
		return 1
	}
	return e.Ranks.Size()
}

// A notice is what a rank tells the others before the work.
type notice struct {
	Key   string          // of the statistics
	Known bool            // an earlier run left them; counts on the first rank
	Error json.RawMessage `json:",omitempty"` // as comm.EncodeError returns it
}

// agree returns an error on all ranks if one has one, or has another key. known is that of the first rank.
func (e *Evaluation) agree(key string, known bool, own error) (bool, error) {
	own = show.Interrupted(own, "nothing was measured")
	text, err := json.Marshal(notice{key, known, comm.EncodeError(own)})
	if err != nil {
		return false, err
	}
	all, err := e.Ranks.GatherAll(text)
	if err != nil {
		return false, err
	}
	if own != nil {
		return false, &comm.AgreedError{Err: own}
	}
	notices := make([]notice, len(all))
	for rank, text := range all {
		if err := json.Unmarshal(text, &notices[rank]); err != nil {
			return false, err
		}
		if err := comm.DecodeError(notices[rank].Error); err != nil {
			return false, &comm.AgreedError{Err: &comm.RankError{Rank: rank, Err: err}}
		}
	}
	for rank, r := range notices {
		if r.Key != notices[0].Key {
			return false, &comm.AgreedError{Err: fmt.Errorf("the model or the text of rank %d is another than that of rank 0: give all ranks the "+
				"same files", rank)}
		}
	}
	return notices[0].Known, nil
}

// number gives the rank its directory of activations.
func (r *Evaluated) number(run *windows.Run) error {
	ranks := r.Ranks.Size()
	if len(run.Windows) < ranks {
		return fmt.Errorf("%s: %d ranks divide %s of %d tokens, want at least one each: start fewer ranks, or use a longer text", r.Text, ranks,
			show.Counted(len(run.Windows), "window"), r.Context)
	}
	run.Ranks, run.Inputs.Ranks = r.Ranks, r.Ranks
	run.Stream.Key[windows.RanksKey] = fmt.Sprint(ranks)
	if !r.first() {
		run.Stream.Dir = windows.RankDir(run.Stream.Dir, r.Ranks.Rank())
	}
	return nil
}
