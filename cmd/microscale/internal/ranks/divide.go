package ranks

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/microscale-go/microscale/comm"
)

// A share is the results of one rank, in the order of its tasks.
type share[T any] struct {
	Results []T
	Error   []byte // as comm.EncodeError returns it
}

// Divide returns the results of task for the numbers below n, on every rank. In an MPI job, rank r of R
// computes those of r, r+R, r+2·R and so on, and all ranks call Divide. A rank whose task fails returns its
// error, and the others that of the first such rank. Without other processes, Divide returns the results
// before the error, too. encoding/gob must support T.
func Divide[T any](j *Job, n int, task func(i int) (T, error)) ([]T, error) {
	if j.world == nil {
		return each(0, 1, n, task)
	}
	rank, size := j.world.Rank(), j.world.Size()
	own, err := each(rank, size, n, task)
	var message bytes.Buffer
	if failed := gob.NewEncoder(&message).Encode(share[T]{own, comm.EncodeError(err)}); failed != nil {
		j.abort(failed)
	}
	texts, failed := j.world.GatherAll(message.Bytes())
	if failed != nil {
		j.abort(failed)
	}
	if err != nil {
		return nil, err
	}
	all := make([]T, n)
	for r, text := range texts {
		var s share[T]
		if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&s); err != nil {
			return nil, fmt.Errorf("the results of rank %d: %w", r, err)
		}
		if err := comm.DecodeError(s.Error); err != nil {
			return nil, &comm.RankError{Rank: r, Err: err}
		}
		for i, result := range s.Results {
			all[r+i*size] = result
		}
	}
	return all, nil
}

// each returns the results of task for first, first+step and so on below n, on error those before it.
func each[T any](first, step, n int, task func(i int) (T, error)) ([]T, error) {
	var results []T
	for i := first; i < n; i += step {
		result, err := task(i)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}
