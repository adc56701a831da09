//go:build unix && !solaris && !aix

package convert

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoLocks: on a filesystem without locks a run goes on without one, and only
// a lock that is held is another run's.
func TestNoLocks(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	for _, tc := range []struct {
		err  syscall.Errno
		want string
	}{
		{syscall.ENOTSUP, ""}, {syscall.ENOSYS, ""}, {syscall.ENOLCK, ""}, {syscall.EBADF, ""},
		{syscall.EWOULDBLOCK, "another run is writing to it"},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			flock = func(int, int) error { return tc.err }
			dir := t.TempDir()
			plan, dst := planOf(t, filepath.Join(dir, "src")), filepath.Join(dir, "dst")
			_, err := plan.Run(context.Background(), dst, RunOptions{})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
