//go:build !linux && !darwin && !windows

package durable

// RenameNew renames a file or directory. It replaces nothing: the error is os.ErrExist if the new name exists.
func RenameNew(from, to string) error { return renameReserved(from, to) }
