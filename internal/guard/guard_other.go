//go:build !unix

package guard

import "testing"

func pages(t testing.TB, _ int, _ Side) []byte {
	t.Helper()
	t.Skip("this operating system's pages are not guarded here: only Unix ones are")
	return nil
}
