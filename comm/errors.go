package comm

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// An AgreedError is an error that every rank of the job returns at the same point. After other
// errors the job must be aborted, because other ranks may wait for this one.
type AgreedError struct{ Err error }

// Error returns the text of e.Err.
func (e *AgreedError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *AgreedError) Unwrap() error { return e.Err }

// A RankError is an error of one rank. Rank is its number in the job.
type RankError struct {
	Rank int
	Err  error
}

func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns e.Err.
func (e *RankError) Unwrap() error { return e.Err }

// A sentError is the wire form of an error, as JSON: its text and, if it wraps an error of a registered
// type, the name of the type and that error.
type sentError struct {
	Text  string          `json:"text"`
	Type  string          `json:"type,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// An errorType finds and restores errors of one type.
type errorType struct {
	name    string
	find    func(error) (error, bool)
	restore func(json.RawMessage) (error, error)
}

var errorTypes []errorType

// RegisterError lets errors of type E keep their type between ranks. encoding/json must support E.
// Call it in an init function, so that all ranks register the same types.
func RegisterError[E error]() {
	errorTypes = append(errorTypes, errorType{
		name: reflect.TypeFor[E]().String(),
		find: func(err error) (error, bool) { return errors.AsType[E](err) },
		restore: func(data json.RawMessage) (error, error) {
			var e E
			err := json.Unmarshal(data, &e)
			return e, err
		},
	})
}

// EncodeError returns err for DecodeError on another rank, and nothing for nil. Of the registered
// types, the first that errors.As finds in err is kept.
func EncodeError(err error) []byte {
	if err == nil {
		return nil
	}
	sent := sentError{Text: err.Error()}
	for _, t := range errorTypes {
		if found, ok := t.find(err); ok {
			var failed error
			sent.Type = t.name
			sent.Value, failed = json.Marshal(found)
			must(failed)
			break
		}
	}
	data, failed := json.Marshal(sent)
	must(failed)
	return data
}

// DecodeError returns the error that another rank encoded: one with the same text that wraps the error of
// the registered type. It returns nil for no data, and an error that describes the failure for data that
// EncodeError did not write.
func DecodeError(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var sent sentError
	if err := json.Unmarshal(data, &sent); err != nil {
		return fmt.Errorf("decode error of another rank: %w", err)
	}
	received := receivedError{text: sent.Text}
	for _, t := range errorTypes {
		if t.name == sent.Type {
			var failed error
			if received.typed, failed = t.restore(sent.Value); failed != nil {
				return fmt.Errorf("decode error %s of another rank: %w", t.name, failed)
			}
		}
	}
	return &received
}

// A receivedError is an error of another rank.
type receivedError struct {
	text  string
	typed error // nil: no registered type
}

func (e *receivedError) Error() string { return e.text }

// Unwrap returns the error of the registered type.
func (e *receivedError) Unwrap() error { return e.typed }
