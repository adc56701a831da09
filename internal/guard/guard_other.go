//go:build !unix

package guard

import "testing"

func pages(t testing.TB, _ int, _ Side) []byte {
	t.Helper()
	t.Skip("guarded pages are implemented for Unix only")
	return nil
}
