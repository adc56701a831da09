package hub

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// TestResumeAfterDrops checks that a conversion that lost its connection can be resumed: the second run
// reads the rest, and the result is that of an uninterrupted run.
func TestResumeAfterDrops(t *testing.T) {
	const second = "other model-00002"
	s := newServer(t)
	var lost atomic.Bool
	s.faults = func(_ http.ResponseWriter, r *http.Request, what string) bool {
		if lost.Load() && strings.HasPrefix(what, second) && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") { // after the header
			panic(http.ErrAbortHandler)
		}
		return false
	}
	convertTo := func(dst string, resume bool) (*convert.Result, error) {
		plan, err := convert.PlanQuantize(t.Context(), open(t, s.client()),
			convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
		if err != nil {
			t.Fatal(err)
		}
		return plan.Run(context.Background(), dst, convert.RunOptions{Resume: resume})
	}
	dir := t.TempDir()
	whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	want, err := convertTo(whole, false)
	if err != nil {
		t.Fatal(err)
	}
	all := len(s.requests("other"))

	lost.Store(true)
	if _, err := convertTo(dst, true); err == nil || !strings.Contains(err.Error(), "6 attempts") || !strings.HasPrefix(err.Error(), model) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(dst); err == nil {
		t.Fatal("a failed run left a result")
	}
	lost.Store(false)
	before := len(s.requests("other"))
	got, err := convertTo(dst, true)
	if err != nil || !got.Resumed {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := len(s.requests("other")) - before; n >= all {
		t.Errorf("the resumed run fetched %d ranges, a whole run %d", n, all)
	}
	for i, tensor := range got.Tensors {
		if tensor.Result != want.Tensors[i].Result {
			t.Errorf("%s: %+v, want %+v", tensor.Name, tensor.Result, want.Tensors[i].Result)
		}
	}
	sameFiles(t, dst, whole)
}

// sameFiles compares the files of two folders.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	err := filepath.WalkDir(want, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(want, path)
		if err != nil {
			return err
		}
		a, errA := os.ReadFile(filepath.Join(got, name))
		b, errB := os.ReadFile(path)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs (%v, %v)", name, errA, errB)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
