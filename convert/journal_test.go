package convert

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/verify"
)

// TestJournalFails: a run fails if its journal cannot be written, even if the error appears
// only after all tiles are done.
func TestJournalFails(t *testing.T) {
	plan, dst := planFor(t, writeModel(t, tiledModel(), madeConfig), "mxfp8"), filepath.Join(t.TempDir(), "dst")
	var r *run
	options := RunOptions{Progress: func(p verify.Progress) {
		if p.Done == p.Total {
			r.journal.lock.Lock() // which a record waits for
			_ = r.journal.close()
			time.Sleep(2 * journalOften)
			time.AfterFunc(journalOften, r.journal.lock.Unlock)
		}
	}}
	r = newRun(plan, options)
	var err error
	if r.out, err = plan.newOutput(dst, options); err != nil {
		t.Fatal(err)
	}
	defer r.out.abort()
	begin, err := plan.beginning()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.restore(context.Background(), begin); err != nil {
		t.Fatal(err)
	}
	if _, err := r.write(context.Background()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want that of the journal", err)
	}
}

// partly makes the files of a run that ended after n tiles, and returns its journal.
func partly(t *testing.T, src, dst string, n int) (journal string) {
	t.Helper()
	if !interrupted(t, planFor(t, src, "nvfp4"), dst, n) {
		t.Fatal("the run came to its end")
	}
	return filepath.Join(dst+partialSuffix, markerName)
}

// TestJournalDamage truncates a journal at many places and damages it: a run resumes from the
// records before the damage.
func TestJournalDamage(t *testing.T) {
	src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
	whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), whole, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for trial := range 12 {
		journal := partly(t, src, dst, 12)
		data, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
		switch trial % 4 {
		case 0: // torn
			data = data[:random.IntN(len(data)+1)]
		case 1: // torn, and filled with zeros by the filesystem
			n := random.IntN(len(data))
			data = append(data[:n:n], make([]byte, 300)...)
		case 2: // the last record is damaged
			data[last+random.IntN(len(data)-last)] ^= 1 << random.IntN(8)
		case 3: // one before it is
			data[random.IntN(last)] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(journal, data, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true})
		if err != nil {
			t.Fatalf("trial %d: %v", trial, err)
		}
		sameResult(t, dst, whole)
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournalOutside: a sound journal that records progress beyond the end of a weight is
// rejected, and no value is missing from the result.
func TestJournalOutside(t *testing.T) {
	src, dst := writeModel(t, tiledModel(), madeConfig), filepath.Join(t.TempDir(), "dst")
	for _, place := range [][2]int{{-1, 0}, {1 << 40, 0}, {1 << 62, 0}, {0, -1}, {0, 1 << 40}} {
		if err := os.RemoveAll(dst + partialSuffix); err != nil {
			t.Fatal(err)
		}
		journal := partly(t, src, dst, 12)
		records, _, err := readJournal(journal)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(records, func(r record) bool { return r.Done != nil })
		if i < 0 {
			t.Fatal("no weight was begun")
		}
		records = records[:i+1]
		records[i].Done.Row, records[i].Done.Col = place[0], place[1]
		var text []byte
		for _, r := range records {
			line, err := r.line()
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, line...)
		}
		if err := os.WriteFile(journal, text, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true})
		if err == nil || !strings.Contains(err.Error(), "does not match the plan") {
			t.Errorf("done up to %v: %v", place, err)
		}
	}
}

// TestJournalAmaxOutside: the amax of a weight that the plan does not have is rejected.
func TestJournalAmaxOutside(t *testing.T) {
	src, dst := writeModel(t, tiledModel(), madeConfig), filepath.Join(t.TempDir(), "dst")
	for _, weight := range []int{-1, len(planFor(t, src, "nvfp4").decisions), 1 << 40} {
		if err := os.RemoveAll(dst + partialSuffix); err != nil {
			t.Fatal(err)
		}
		journal := partly(t, src, dst, 12)
		records, _, err := readJournal(journal)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(records, func(r record) bool { return r.Amax != nil })
		if i < 0 {
			t.Fatal("no amax was recorded")
		}
		records[i].Amax.Weight = weight
		var text []byte
		for _, r := range records {
			line, err := r.line()
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, line...)
		}
		if err := os.WriteFile(journal, text, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: true})
		if err == nil || !strings.Contains(err.Error(), "does not match the plan") {
			t.Errorf("the amax of weight %d: %v", weight, err)
		}
	}
}

// TestJournalLines: a line that is no record ends the journal, whatever its length is.
func TestJournalLines(t *testing.T) {
	good, err := record{Complete: true}.line()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "1f3a90b", "1f3a90bc", "1f3a90bc ", "1f3a90bc {}", "1f3a90bc_{}", "xxxxxxxx {}"} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, slices.Concat(good, []byte(bad+"\n"), good), 0o600); err != nil {
			t.Fatal(err)
		}
		records, size, err := readJournal(path)
		if err != nil || len(records) != 1 || !records[0].Complete || size != int64(len(good)) {
			t.Errorf("%q: %+v, %d bytes (%v)", bad, records, size, err)
		}
	}
}

// TestOpenOwn opens and creates files, but follows no link.
func TestOpenOwn(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	for range 2 {
		f, err := openOwn(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if f, err := openOwn(link); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a link: %v, error %v", f, err)
	}
}

// TestJournalVersion: a run does not resume one of another version, or of another worker.
func TestJournalVersion(t *testing.T) {
	same := beginning{Version: journalVersion, Workers: 2, Worker: 1}
	for want, b := range map[string]*beginning{
		"":                                  {Version: journalVersion, Workers: 2, Worker: 1},
		"the journal has version 1, but":    {Version: 1, Workers: 2, Worker: 1},
		"the journal belongs to worker 0":   {Version: journalVersion, Workers: 2},
		"the journal does not identify its": nil,
	} {
		if got := b.mismatch(&same, ""); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
