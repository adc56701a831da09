package ranks

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/train"
)

// TestFromFirst returns results and errors of rank 0 on both ranks, and requires that errors keep their types.
func TestFromFirst(t *testing.T) {
	var results [2]string
	var usage, directory [2]error
	if err := comm.Run(2, comm.Options{}, func(g *comm.Group) (err error) {
		j := &Job{world: g}
		if results[g.Rank()], err = FromFirst(j, func() (string, error) { return "of rank 0", nil }); err != nil {
			return err
		}
		_, usage[g.Rank()] = FromFirst(j, func() (string, error) { return "", show.Misuse("--dp is 3") })
		_, directory[g.Rank()] = FromFirst(j, func() (string, error) {
			return "", &train.DirectoryError{Problem: "out: it is taken", Taken: true, Remedies: []string{"Force"}}
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for rank, result := range results {
		if result != "of rank 0" {
			t.Errorf("rank %d: got %q", rank, result)
		}
		if e, ok := errors.AsType[show.UsageError](usage[rank]); !ok || e.Message != "--dp is 3" || usage[rank].Error() != "--dp is 3" {
			t.Errorf("rank %d: got %v, want the UsageError of rank 0", rank, usage[rank])
		}
		if e, ok := errors.AsType[*train.DirectoryError](directory[rank]); !ok || !e.Taken || !slices.Equal(e.Remedies, []string{"Force"}) {
			t.Errorf("rank %d: got %v, want the DirectoryError of rank 0", rank, directory[rank])
		}
	}
}

// TestDivide computes ten squares on one rank, and on three. No rank computes a square twice. An error of one
// rank is returned on all.
func TestDivide(t *testing.T) {
	square := func(i int) (float64, error) { return float64(i * i), nil }
	want, err := Divide(&Job{}, 10, square)
	if err != nil || len(want) != 10 || want[9] != 81 {
		t.Fatalf("one rank: got %v, %v", want, err)
	}
	var calls [10]atomic.Int32
	var got [3][]float64
	var errs [3]error
	if err := comm.Run(3, comm.Options{}, func(g *comm.Group) (err error) {
		j := &Job{world: g}
		if got[g.Rank()], err = Divide(j, 10, func(i int) (float64, error) {
			calls[i].Add(1)
			return square(i)
		}); err != nil {
			return err
		}
		_, errs[g.Rank()] = Divide(j, 10, func(i int) (float64, error) {
			if i == 4 {
				return math.NaN(), show.Misuse("of task 4")
			}
			return math.NaN(), nil
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for rank := range got {
		if !slices.Equal(got[rank], want) {
			t.Errorf("rank %d: got %v, want %v", rank, got[rank], want)
		}
		if e, ok := errors.AsType[show.UsageError](errs[rank]); !ok || e.Message != "of task 4" {
			t.Errorf("rank %d: got %v, want the error of task 4", rank, errs[rank])
		}
	}
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("task %d was computed %d times", i, n)
		}
	}
}
