package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
)

// maxReport is the maximum size in bytes of an existing  One has about 1 MB.
const maxReport = 64 << 20

// CheckReport returns an error unless the file at path is a report, which ReplaceReport may replace. The
// error matches fs.ErrNotExist if there is no file.
func CheckReport(path string) error {
	text, err := limits.ReadFile(path, maxReport)
	if err != nil {
		return fmt.Errorf("write a report: %s: %w", show.Printable(path), limits.Cause(err))
	}
	if !bytes.Contains(text, []byte(Generator)) {
		return fmt.Errorf("write a report: %s is not a report of microscale and would be replaced", show.Printable(path))
	}
	return nil
}

// ReplaceReport atomically replaces the file at path, or that which a link at path names, with a page. If
// the page cannot be written, the old file is unchanged.
func ReplaceReport(path string, page []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return durable.WriteWhole(path, page, os.Rename)
}
