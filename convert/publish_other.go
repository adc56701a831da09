//go:build !linux && !darwin && !windows

package convert

// renameNew renames a file or directory. The error is os.ErrExist if the new name exists.
func renameNew(from, to string) error { return renameReserved(from, to) }
