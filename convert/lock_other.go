//go:build !unix || solaris || aix

package convert

import "os"

// lockDir opens a directory. This system has no lock that ends with its process,
// so two runs to one destination are not kept apart.
func lockDir(path string) (*os.File, error) { return os.Open(path) }
