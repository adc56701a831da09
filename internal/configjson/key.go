package configjson

import (
	"errors"
	"fmt"
)

// A Key is the name of a member of a configuration in the text of a KeyError.
type Key string

// A KeyError reports values of a configuration that are invalid or conflict. A program whose users know
// the members by other names, such as flags, describes it by Named.
type KeyError struct {
	format string
	args   []any
}

// Invalid returns a *KeyError with the text fmt.Sprintf(format, args...). args of type Key are names of
// members; an argument may be another *KeyError.
func Invalid(format string, args ...any) error { return &KeyError{format, args} }

func (e *KeyError) Error() string { return fmt.Sprintf(e.format, e.args...) }

// Named returns the text with name(k) in place of every key k.
func (e *KeyError) Named(name func(Key) string) string {
	args := make([]any, len(e.args))
	for i, a := range e.args {
		args[i] = a
		switch a := a.(type) {
		case Key:
			args[i] = name(a)
		case error:
			if nested, ok := errors.AsType[*KeyError](a); ok {
				args[i] = nested.Named(name)
			}
		}
	}
	return fmt.Sprintf(e.format, args...)
}
