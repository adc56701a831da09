package convert

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/durable"
)

// name gives the finished result the name DST, and replaces an earlier one only if force is
// set. On error, the finished result stays in the partial directory.
func (o *output) name() error {
	o.finished = true
	if err := foreign(o.partial, o.names); err != nil {
		return fmt.Errorf("%w; the finished result is in %s: resume the run to rename it", err, o.partial)
	}
	err := o.rename()
	switch {
	case errors.Is(err, os.ErrExist):
		return because(err, fmt.Errorf("%s: the destination appeared while the result was written: move it away and resume the run; the "+
			"finished result is in %s", o.final, o.partial))
	case err != nil:
		return fmt.Errorf("%w; the finished result is in %s: resume the run to rename it", err, o.partial)
	}
	return nil
}

func (o *output) rename() error {
	if o.force {
		if err := o.admitName(); err != nil { // DST may have changed since
			return err
		}
	}
	from := o.partial
	if o.single {
		from = o.path(singleName)
	}
	switch {
	case o.replace && o.single:
		return os.Rename(from, o.final)
	case o.replace:
		return o.replaceDir()
	}
	return durable.RenameNew(from, o.final)
}

// replaceDir moves an earlier directory DST away and renames the new one to DST.
func (o *output) replaceDir() error {
	err := o.remove(o.replaced)
	if err == nil {
		err = durable.RenameNew(o.final, o.replaced)
	}
	if err != nil {
		return fmt.Errorf("%s: replace the earlier one: %w", o.final, err)
	}
	if err := durable.RenameNew(o.partial, o.final); err != nil {
		return errors.Join(err, durable.RenameNew(o.replaced, o.final))
	}
	return nil
}

// unmark removes the journal from a committed result. A run that is killed before this leaves a
// hidden file that no client reads.
func (o *output) unmark() {
	if !o.single {
		_ = os.Remove(filepath.Join(o.final, markerName))
	}
}
