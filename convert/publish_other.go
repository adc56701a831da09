//go:build !linux && !darwin && !windows

package convert

// renameNew renames a file or directory and fails with os.ErrExist where the new
// name is taken.
func renameNew(from, to string) error { return renameReserved(from, to) }
