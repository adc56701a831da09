package comm

// An AgreedError is an error that every rank of the job returns at the same point. After other
// errors the job must be aborted, because other ranks may wait for this one.
type AgreedError struct{ Err error }

// Error returns the text of e.Err.
func (e *AgreedError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *AgreedError) Unwrap() error { return e.Err }
