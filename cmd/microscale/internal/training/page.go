package training

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// ReportName is the file name of the report.
const ReportName = "report.html"

// Reportable checks, before minutes of training, that a report can be written to dir,
// and that dir holds nothing but an earlier report.
func Reportable(dir string) error {
	entries, err := os.ReadDir(dir)
	place := dir // dir, or its nearest parent that exists
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
		return fmt.Errorf("write a report to %s: %w; name another directory with --out", show.Printable(dir), err)
	}
	for _, e := range entries {
		if e.Name() != ReportName {
			return fmt.Errorf("write a report to %s: the directory holds other files, such as %s; name another with --out", show.Printable(dir),
				show.Printable(e.Name()))
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := report.CheckReport(filepath.Join(dir, ReportName)); err != nil {
		return fmt.Errorf("%w; name another directory with --out", err)
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
				_ = os.Remove(folder) // err is more informative
			}
		}
	}()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	if err := report.ReplaceReport(path, page); err != nil {
		return "", err
	}
	return path, nil
}

// missing returns the directories of a path that do not exist, the innermost first.
func missing(dir string) (folders []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return folders
		}
		folders = append(folders, dir)
		dir = filepath.Dir(dir)
	}
}
