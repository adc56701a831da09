package convert

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestCalibrationWhole checks with inotify that Calibration.Write writes to another name than that of
// its file, which a kill would leave incomplete, and that it replaces no file.
func TestCalibrationWhole(t *testing.T) {
	dir := t.TempDir()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(watch) }()
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	path, c := filepath.Join(dir, "amax.toml"), &Calibration{Input: map[string]float64{"proj": 3}}
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	events := make([]byte, 4096)
	n, err := unix.Read(watch, events)
	if err != nil {
		t.Fatalf("no file was written: %v", err)
	}
	for events = events[:n]; len(events) > 0; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&events[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		if name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00"); name == filepath.Base(path) {
			t.Errorf("%s was written under its name", name)
		}
		events = events[end:]
	}
	if read, err := ReadCalibration(path); err != nil || read.Input["proj"] != 3 {
		t.Errorf("got %v, %v", read, err)
	}
	if err := c.Write(path); !errors.Is(err, os.ErrExist) || err.Error() != "write "+path+": file exists" {
		t.Errorf("existing file: got %v", err)
	}
	if names(t, dir) != "amax.toml" {
		t.Errorf("got files %s", names(t, dir))
	}
}
