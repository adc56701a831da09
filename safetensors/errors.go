package safetensors

import (
	"errors"
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/internal/limits"
)

// Remedies, by the cause of a fault.
const (
	fixDamaged   = "the file is damaged or was not written by a safetensors writer; fetch it again"
	fixTruncated = "the file is incomplete; fetch it again"
	fixForeign   = "check that this is a safetensors file"
	fixTensor    = "correct the tensor before writing it"
	fixIndex     = "correct the index, or fetch it again"
)

// A ContainerError reports why a file is not, or would not become, a valid safetensors file or
// index. Errors of the GGUF files that this module reads and writes have the same type.
type ContainerError struct {
	Path    string // the file; empty for bytes in memory
	Tensor  string // the tensor at fault; empty if not a single one
	Key     string // the key of the metadata at fault; empty if none
	Offset  int64  // byte offset of the fault in the file; -1 if none
	Problem string // the problem
	Fix     string // the remedy

	// Err is the cause for [errors.Is], or nil: [io.ErrUnexpectedEOF] if the file is shorter than
	// its header says, [fs.ErrNotExist] if a file that it names, or a tensor that is asked for, does not exist.
	Err error
}

// Unwrap returns e.Err.
func (e *ContainerError) Unwrap() error { return e.Err }

// Error returns one line: file, tensor, key, byte offset, problem, remedy.
func (e *ContainerError) Error() string {
	var parts []string
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	if e.Tensor != "" {
		parts = append(parts, "tensor "+limits.Quote(e.Tensor))
	}
	if e.Key != "" {
		parts = append(parts, "key "+limits.Quote(e.Key))
	}
	if e.Offset >= 0 {
		parts = append(parts, fmt.Sprintf("byte %d", e.Offset))
	}
	parts = append(parts, e.Problem)
	if e.Fix != "" {
		parts = append(parts, e.Fix)
	}
	return strings.Join(parts, ": ")
}

// ioError describes a failed read or write. It wraps the cause.
func ioError(path, where string, cause error) error {
	if e, ok := errors.AsType[*ContainerError](cause); ok {
		return e // it is complete
	}
	return limits.FileError(path, where, cause)
}

// place describes a byte offset of a file, in the data of a tensor or, if tensor is empty, in the
// header.
func place(tensor string, offset int64) string {
	if tensor == "" {
		return fmt.Sprintf("header: byte %d", offset)
	}
	return fmt.Sprintf("tensor %s: byte %d", limits.Quote(tensor), offset)
}
