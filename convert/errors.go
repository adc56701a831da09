package convert

import "errors"

// Causes of errors, for errors.Is. If the destination exists, the error is fs.ErrExist.
var (
	// ErrChanged: the source or the options are not those of the interrupted run, or the source
	// changed while it was read. Start again without RunOptions.Resume.
	ErrChanged = errors.New("source or options changed")
	// ErrDamaged: bytes on the disk do not match their checksum.
	ErrDamaged = errors.New("bytes do not match their checksum")
	// ErrInexact: blocks have no exact cast. CastOptions.Requantize rounds them.
	ErrInexact = errors.New("blocks have no exact cast")
	// ErrNonFinite: the source holds NaN or Inf. RunOptions.AllowNonFinite accepts them.
	ErrNonFinite = errors.New("NaN or Inf in the source")
	// ErrQuantized: the source is quantized already. QuantizeOptions.Requantize accepts some.
	ErrQuantized = errors.New("source is quantized")
	// ErrUnfinished: the part of a worker is missing or incomplete.
	ErrUnfinished = errors.New("part is missing or incomplete")

	errNothing  = errors.New("no weight is quantized")
	errNoFormat = errors.New("no format: name one for all weights, or rules with formats")
)

// A causedError is an error of one of the causes above. Its text is that of the error alone.
type causedError struct {
	error
	cause error
}

// because returns err with a cause for errors.Is.
func because(cause, err error) error { return &causedError{err, cause} }

// Unwrap returns the error and its cause.
func (e *causedError) Unwrap() []error { return []error{e.error, e.cause} }
