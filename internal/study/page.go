package study

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/report"
)

// ReportName is the file that compare writes.
const ReportName = "report.html"

// maxReport is the largest report in bytes that is read, to see whose it is. One has
// about 1 MB.
const maxReport = 64 << 20

// Reportable reports what keeps a report from being written to a directory, before
// minutes of training rather than after them: anything there but an earlier report.
func Reportable(dir string) error {
	entries, err := os.ReadDir(dir)
	place := dir // which there is: the directory, or where it would be made
	for errors.Is(err, fs.ErrNotExist) && place != filepath.Dir(place) {
		place = filepath.Dir(place)
		_, err = os.Stat(place)
	}
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(place, ".report-*"); err == nil {
			probe.Close()
			err = os.Remove(probe.Name())
		}
	}
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	if err != nil {
		return fmt.Errorf("%s: not a directory to write a report to: %w: name another with --out", cli.Printable(dir), err)
	}
	for _, e := range entries {
		if e.Name() != ReportName {
			return fmt.Errorf("%s: the directory has other files than a report, such as %s: name another with --out", cli.Printable(dir), cli.Printable(e.Name()))
		}
	}
	if len(entries) == 0 {
		return nil
	}
	text, err := bounded.ReadFile(filepath.Join(dir, ReportName), maxReport)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(report.Generator)) {
		return fmt.Errorf("%s is not a report of microscale, and would be replaced: name another directory with --out", cli.Printable(filepath.Join(dir, ReportName)))
	}
	return nil
}

// WriteReport writes a page to a directory that is Reportable. It replaces an earlier report
// atomically. On error it removes the directories that it created.
func WriteReport(dir string, page []byte) (path string, err error) {
	path = filepath.Join(dir, ReportName)
	made := missing(dir)
	defer func() {
		if err != nil {
			for _, folder := range made {
				_ = os.Remove(folder) // the error at hand says more
			}
		}
	}()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".report-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(page)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return path, nil
}

// missing returns the folders of a path that do not exist, the innermost first.
func missing(dir string) (folders []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return folders
		}
		folders = append(folders, dir)
		dir = filepath.Dir(dir)
	}
}
