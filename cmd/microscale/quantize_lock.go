package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/durable"
)

// A runLock excludes other runs with the same destination while one reads a text and measures, before its conversion locks its own
// files. It is the lock of the directory DST.microscale-running, which is removed at the end.
type runLock struct {
	dir  string
	lock *durable.Lock
}

// claim locks a destination.
func claim(dst string) (*runLock, error) {
	dst = filepath.Clean(dst)
	dir := dst + windows.OwnName + "running"
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, durable.CannotWrite(filepath.Dir(dst), err)
	}
	lock, err := durable.Dir(dir)
	if errors.Is(err, durable.ErrHeld) || errors.Is(err, fs.ErrNotExist) { // or the other run ends at this moment
		return nil, fmt.Errorf("%s: another run is writing to it (%s is locked): wait for it, or choose another destination",
			show.Printable(dst), show.Printable(dir))
	}
	return &runLock{dir, lock}, err
}

// release removes the directory and unlocks the destination, if it is locked.
func (l *runLock) release() {
	if l == nil || l.lock == nil {
		return
	}
	_ = os.Remove(l.dir) // an empty directory harms nobody
	_ = l.lock.Close()   // nothing was written through it
}
