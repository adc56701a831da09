package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/comm"
)

// A countdown is a context that ends when it has been asked a number of times.
type countdown struct {
	context.Context
	left *atomic.Int64
}

func (c countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestStatisticsRanks divides the windows of statistics among ranks, and interrupts one of them again and again: the file has the
// bytes of one process, and nothing is left.
func TestStatisticsRanks(t *testing.T) {
	e := newEvaluation(t)
	e.Context = 8
	dir := t.TempDir()
	collect := func(name string, ranks, interrupted int, after int64) error {
		left := new(atomic.Int64)
		left.Store(after)
		return comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
			c := Calibration{Evaluation: e, Out: filepath.Join(dir, name), Hessian: true}
			c.Stream = filepath.Join(dir, name+".microscale-partial")
			if ranks > 1 {
				c.Ranks = g
			}
			ctx := t.Context()
			if g.Rank() == interrupted {
				ctx = countdown{ctx, left}
			}
			s, _, err := c.Statistics(ctx)
			if err == nil && s != nil {
				err = s.Close()
			}
			return err
		})
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := collect("one", 1, -1, 0); err != nil {
		t.Fatal(err)
	}
	want, kills := read("one"), 0
	for _, at := range []struct{ ranks, interrupted int }{{2, 0}, {2, 1}, {4, 2}} {
		name := fmt.Sprint(at)
		for after := int64(4); ; after *= 2 {
			err := collect(name, at.ranks, at.interrupted, after)
			if err == nil {
				break
			}
			if kills++; !strings.Contains(err.Error(), "interrupted") && !errors.Is(err, comm.ErrAborted) {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(read(name), want) {
			t.Errorf("%+v: other bytes", at)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.microscale-*")); left != nil || kills < 10 {
		t.Errorf("%v are left after %d interruptions", left, kills)
	}
}

// TestRanksDiffer: errors that one rank has, or all, end all.
func TestRanksDiffer(t *testing.T) {
	e := newEvaluation(t)
	other := writeText(t, strings.Repeat("All that is gold does not glitter\n", 9))
	short := writeText(t, "Not all those wh")
	for want, text := range map[string][2]string{
		"the model or the text of rank 1 is another than that of rank 0": {e.Text, other},
		"rank 1: " + filepath.Join(t.TempDir(), "none"):                  {e.Text, ""},
		"2 ranks divide 1 window of":                                     {short, short},
	} {
		err := comm.Run(2, comm.Options{}, func(g *comm.Group) error {
			c := Calibration{Evaluation: e, Out: filepath.Join(t.TempDir(), "out")}
			if c.Text = text[g.Rank()]; c.Text == "" {
				c.Text = strings.TrimPrefix(want, "rank 1: ")
			}
			c.Context, c.Stream, c.Ranks = 16, c.Out+".microscale-partial", g
			_, _, err := c.Statistics(t.Context())
			if agreed := (*comm.AgreedError)(nil); !errors.As(err, &agreed) {
				t.Errorf("rank %d: got %v, want an error of all ranks", g.Rank(), err)
			}
			if g.Rank() == 1 {
				return nil
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
