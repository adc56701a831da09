package bench

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
)

// place returns the processors on which a thread may run, or none if the thread has ended. 0
// is the caller.
func place(t *testing.T, thread int) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(thread, &set); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	var list []int
	for i := 0; len(list) < set.Count(); i++ {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// TestPinned checks that each thread of a team has a separate processor and other threads
// share the rest of the team's, and that Close undoes this.
func TestPinned(t *testing.T) {
	teams(t, func(t *testing.T, team *Team) {
		if !team.Pinned() {
			t.Fatal("got an unpinned team")
		}
		places := make([][]int, team.Threads())
		team.Time(func(worker int) { places[worker] = place(t, 0) })
		for w, p := range places {
			if !slices.Equal(p, host.Processors()[w:w+1]) {
				t.Errorf("worker %d: got processors %v of %v", w, p, host.Processors())
			}
		}
		var members []int
		for i := range team.members {
			members = append(members, team.members[i].thread)
		}
		want := host.Processors()
		if team.Threads() > 1 {
			want = host.Processors()[1:team.Threads()]
		}
		rest := host.OtherThreads(members)
		if len(rest) == 0 {
			t.Error("got no threads besides the team's")
		}
		for _, id := range rest {
			if got := place(t, id); got != nil && !slices.Equal(got, want) {
				t.Errorf("thread %d: got processors %v, want %v", id, got, want)
			}
		}
	})
	for _, id := range host.OtherThreads(nil) {
		if got := place(t, id); got != nil && !slices.Equal(got, host.Processors()) {
			t.Errorf("after Close, thread %d: got processors %v, want %v", id, got, host.Processors())
		}
	}
}
