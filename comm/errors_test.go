package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A valueError and a *pointerError are errors with fields, as a package registers them.
type valueError struct{ Message string }

func (e valueError) Error() string { return e.Message }

type pointerError struct{ Remedies []string }

func (e *pointerError) Error() string { return "cannot" }

func init() {
	RegisterError[valueError]()
	RegisterError[*pointerError]()
}

// TestErrorTransfer encodes errors and restores them: with their text, and with the values of registered types.
func TestErrorTransfer(t *testing.T) {
	for _, err := range []error{
		valueError{"of a value"},
		fmt.Errorf("dir: %w", &pointerError{[]string{"Resume", "Out"}}),
		fmt.Errorf("of no registered type: %w", ErrTimeout),
	} {
		got := DecodeError(EncodeError(err))
		if got == nil || got.Error() != err.Error() {
			t.Errorf("got %v, want %v", got, err)
		}
		value, ok := errors.AsType[valueError](got)
		if want, is := errors.AsType[valueError](err); ok != is || value != want {
			t.Errorf("%v: got %v %v, want %v %v", err, value, ok, want, is)
		}
		pointer, ok := errors.AsType[*pointerError](got)
		if want, is := errors.AsType[*pointerError](err); ok != is || is && !slices.Equal(pointer.Remedies, want.Remedies) {
			t.Errorf("%v: got %v %v, want %v %v", err, pointer, ok, want, is)
		}
	}
	if data := EncodeError(nil); len(data) > 0 || DecodeError(data) != nil {
		t.Errorf("no error: got %q and %v", data, DecodeError(data))
	}
	for _, damaged := range []string{"{", `{"text":"a","type":"comm.valueError","value":1}`} {
		if err := DecodeError([]byte(damaged)); err == nil {
			t.Errorf("%s: got no error", damaged)
		}
	}
}
