package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Remedies, by the cause of a fault.
const (
	fixDamaged   = "the file is damaged or was not written for llama.cpp; fetch it again"
	fixTruncated = "the file is incomplete; fetch it again"
	fixForeign   = "check that this is a GGUF file"
	fixSpec      = "correct it before writing"
)

// A ContainerError reports why a file is not, or would not become, a valid GGUF file.
type ContainerError struct {
	Path    string // the file; empty for bytes in memory
	Tensor  string // the tensor at fault; empty if none
	Key     string // the key at fault; empty if none
	Offset  int64  // byte offset of the fault in the file; -1 if none
	Problem string // the problem
	Fix     string // the remedy
}

// Error returns one line: file, tensor or key, byte offset, problem, remedy.
func (e *ContainerError) Error() string {
	var parts []string
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	if e.Tensor != "" {
		parts = append(parts, "tensor "+quote(e.Tensor))
	}
	if e.Key != "" {
		parts = append(parts, "key "+quote(e.Key))
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

// quote quotes a string from a file for an error line, truncated if it is long.
func quote(s string) string {
	const most = 120
	if len(s) <= most {
		return strconv.Quote(s)
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strconv.Quote(s[:n]) + "…"
}

// ioError describes a failed read or write. It wraps the cause.
func ioError(path, where string, cause error) error {
	if e, ok := errors.AsType[*fs.PathError](cause); ok {
		cause = e.Err // its path would be the second one on the line
	}
	return fmt.Errorf("%s: %s: %w", path, where, cause)
}
