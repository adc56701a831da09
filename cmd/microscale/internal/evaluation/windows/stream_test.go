package windows

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// interrupted returns a run whose stream was interrupted after a number of steps.
func interrupted(t *testing.T, dir string, steps int) *Run {
	t.Helper()
	first := newTestRun(t)
	first.Stream = &Stream{Dir: dir, Key: testKey()}
	ctx, cancel := context.WithCancel(t.Context())
	first.Progress = func(done, _ int) {
		if done == steps {
			cancel()
		}
	}
	if _, err := first.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the interruption", err)
	}
	again := newTestRun(t)
	again.Stream = first.Stream
	return again
}

// TestStreamDamage damages each file of activations of an interrupted run in several ways. The next run names
// the file before it computes anything.
func TestStreamDamage(t *testing.T) {
	for what, damage := range map[string]func(name string) error{
		"incomplete": func(name string) error { return os.Truncate(name, 100) },
		"too large":  func(name string) error { return os.Truncate(name, 1<<20) },
		"empty":      func(name string) error { return os.Truncate(name, 0) },
		"missing":    os.Remove,
		"zeros": func(name string) error {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, make([]byte, info.Size()), 0o600)
		},
		"one bit": func(name string) error {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			data[len(data)/2] ^= 1
			return os.WriteFile(name, data, 0o600)
		},
	} {
		for stack := range 2 {
			again := interrupted(t, t.TempDir(), len(testWindows(t))+1)
			name := again.Stream.residuals(stack, 1)
			if err := damage(name); err != nil {
				t.Fatal(err)
			}
			again.Progress = func(int, int) { t.Errorf("%s: a window was computed", what) }
			if _, err := again.Do(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name+": ") || !strings.HasSuffix(err.Error(),
				"remove its directory and begin again") {
				t.Errorf("%s: got %v", what, err)
			}
		}
	}
}

// TestStreamChanged damages a file while a run reads it: the run fails before it saves the next state.
func TestStreamChanged(t *testing.T) {
	again := interrupted(t, t.TempDir(), len(testWindows(t))+1)
	name := again.Stream.residuals(0, 1)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	again.Progress = func(int, int) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Error(err)
		}
	}
	if _, err := again.Do(t.Context()); err == nil || !strings.Contains(err.Error(), name+": the file is damaged") {
		t.Errorf("got %v", err)
	}
	if got := again.Stream.Completed(); got != 1 {
		t.Errorf("%d layers are complete, want 1", got)
	}
}

// TestStreamOthers puts files of others, among them links with names of the run, into the directory of a run. They
// are unchanged at its end, and what the links name, too.
func TestStreamOthers(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "scratch"), filepath.Join(t.TempDir(), "thesis")
	if err := os.WriteFile(outside, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newTestRun(t)
	r.Stream = &Stream{Dir: dir, Key: testKey()}
	r.Progress = func(done, _ int) {
		if done != 1 {
			return
		}
		err := errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o700), os.WriteFile(filepath.Join(dir, "other", "notes"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "9-9.f32"), nil, 0o600), os.Symlink(outside, r.Stream.residuals(0, 2)))
		if err != nil {
			t.Skip(err)
		}
	}
	if _, err := r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"9-9.f32", "other"}; err != nil || !reflect.DeepEqual(left, want) {
		t.Errorf("%v are left, want %v (%v)", left, want, err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
		t.Errorf("the file behind a link: %q, %v", text, err)
	}
}

// TestStreamKilled continues after a run that was killed while it wrote a state, or removed its files.
func TestStreamKilled(t *testing.T) {
	const temporary = ".microscale-00000000000000ab"
	whole := newTestRun(t)
	want, err := whole.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, kill := range map[string]func(s *Stream) error{
		"the first state": func(s *Stream) error {
			return errors.Join(os.Remove(s.residuals(0, 1)), os.Remove(s.residuals(1, 1)), os.Remove(s.residuals(2, 1)),
				os.Remove(filepath.Join(s.Dir, streamState)))
		},
		"a state": func(s *Stream) error { return os.WriteFile(s.residuals(1, 2), []byte("new"), 0o600) },
		"the end": func(s *Stream) error { return s.save(state{Key: s.Key, Layers: -1}) },
		"removing": func(s *Stream) error {
			return errors.Join(s.save(state{Key: s.Key, Layers: -1}), os.Remove(s.residuals(0, 1)))
		},
	} {
		dir := filepath.Join(t.TempDir(), "scratch")
		again := interrupted(t, dir, len(testWindows(t))+1)
		_ = os.Remove(again.Stream.residuals(0, 2)) // of the layer that was interrupted
		_ = os.Remove(again.Stream.residuals(1, 2))
		_ = os.Remove(again.Stream.residuals(2, 2))
		if err := errors.Join(kill(again.Stream), os.WriteFile(filepath.Join(dir, temporary), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		got, err := again.Do(t.Context())
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		got.Earlier = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the results differ", what)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("%s: %v are left", what, entries)
		}
	}
}

// TestStreamDiscard removes what a run left that was killed when its result was known.
func TestStreamDiscard(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "scratch")
	r := interrupted(t, dir, len(testWindows(t))+1)
	for _, s := range []*Stream{r.Stream, interrupted(t, RankDir(dir, 3), len(testWindows(t))+1).Stream} {
		st, err := s.readState()
		if err != nil {
			t.Fatal(err)
		}
		st.Key[RanksKey] = "4" // of which this run has one
		if err := s.save(st); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Discard(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%v are left (%v)", left, err)
	}
}

// TestStreamEmpty: an empty directory with a name of the program is of a killed run, and is removed; one that the user made stays.
func TestStreamEmpty(t *testing.T) {
	for name, want := range map[string]error{"model" + OwnName + "statistics": os.ErrNotExist, "mine": nil} {
		dir := filepath.Join(t.TempDir(), name)
		for what, run := range map[string]func(r *Run) error{
			"Do":      func(r *Run) error { _, err := r.Do(t.Context()); return err },
			"Discard": (*Run).Discard,
		} {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			r := newTestRun(t)
			r.Stream = &Stream{Dir: dir, Key: testKey()}
			if err := run(r); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, want) {
				t.Errorf("%s after %s: %v, want %v", name, what, err, want)
			}
		}
	}
}
