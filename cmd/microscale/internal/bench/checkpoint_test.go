package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestCheckpoint checks the results of two rounds, and that only the source stays.
func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	var done []string
	c := Checkpoint{Dir: dir, Size: 1e5, Formats: []quant.Format{quant.MXFP8, quant.NVFP4}, Rounds: 2, Threads: 1,
		Progress: func(op, format string) {
			done = append(done, strings.TrimSpace(op+" "+format))
		}}
	results, err := c.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(done, ", "), "warming, copy, checkpoint mxfp8, checkpoint nvfp4, copy, checkpoint mxfp8, "+
		"checkpoint nvfp4"; got != want {
		t.Errorf("works: got %s, want %s", got, want)
	}
	copied := results[len(results)-1]
	for i, r := range results {
		if r.Time.Runs != 2 || r.Time.Median <= 0 || r.Work < 0.5e5 || r.Work > 2e5 {
			t.Errorf("result %d: got %+v", i, r)
		}
		if i < len(results)-1 && r.Limit != copied.Rate() {
			t.Errorf("%s: got limit %g, want the rate of the copy, %g", r.Format, r.Limit, copied.Rate())
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "src" {
		t.Errorf("got files %v, %v, want src", entries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Dir = t.TempDir()
	if _, err := c.Measure(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}
