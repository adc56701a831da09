// Package lock keeps two processes from writing to one directory.
package lock

import "errors"

// ErrHeld is what Dir returns of a directory that another run has locked.
var ErrHeld = errors.New("locked by another run")
