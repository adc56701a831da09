//go:build !((linux || darwin) && (amd64 || arm64)) || nompi

package mpi

import (
	"errors"
	"time"

	"github.com/microscale-go/microscale/comm"
)

var errUnsupported = errors.New("this build cannot call MPI: it was built with the tag nompi, or for a system other than Linux and " +
	"macOS on amd64 or arm64")

// A Transport connects this process with the others of its job. This build has none.
type Transport struct{}

// Connect returns an error in this build.
func Connect(string, time.Duration) (*Transport, error) {
	FindLauncher().waitTurn()
	return nil, errUnsupported
}

// Rank is not reached in this build.
func (t *Transport) Rank() int { panic(errUnsupported) }

// Size is not reached in this build.
func (t *Transport) Size() int { panic(errUnsupported) }

// Library is not reached in this build.
func (t *Transport) Library() string { panic(errUnsupported) }

// Start is not reached in this build.
func (t *Transport) Start(int, []comm.Message) *comm.Pending { panic(errUnsupported) }

// Watch is not reached in this build.
func (t *Transport) Watch(time.Duration) error { panic(errUnsupported) }

// Abort is not reached in this build.
func (t *Transport) Abort(err error) { panic(err) }

// Exit is not reached in this build.
func (t *Transport) Exit(int) { panic(errUnsupported) }
