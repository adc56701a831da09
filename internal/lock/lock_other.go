//go:build !unix || solaris || aix

package lock

import "os"

// Dir opens a directory. This system has no lock that ends with its process, so
// two runs to one directory are not kept apart.
func Dir(path string) (*os.File, error) { return os.Open(path) }
