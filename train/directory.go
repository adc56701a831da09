package train

import (
	"io/fs"

	"github.com/microscale-go/microscale/comm"
)

// A DirectoryError reports that a run cannot use the directory Config.Out. It matches fs.ErrExist if Taken,
// ErrDone if Done, and fs.ErrNotExist if Absent.
type DirectoryError struct {
	Problem  string   // the path, the problem and its remedies
	Remedies []string // fields of Config that help: Resume, Force and Out, for another directory
	Taken    bool     // a new run cannot start: the directory has a run, a model or other files
	Busy     bool     // another run is writing to the directory
	Done     bool     // the run is complete: there is nothing to resume
	Absent   bool     // a resumed run has no directory
}

// All ranks return the error of the first that has one.
func init() {
	comm.RegisterError[*DirectoryError]()
	comm.RegisterError[*ConfigError]()
}

func (e *DirectoryError) Error() string { return e.Problem }

// Is reports whether e matches fs.ErrExist, ErrDone or fs.ErrNotExist.
func (e *DirectoryError) Is(target error) bool {
	return e.Taken && target == fs.ErrExist || e.Done && target == ErrDone || e.Absent && target == fs.ErrNotExist
}
