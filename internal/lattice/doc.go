// Package lattice holds no code, only the tests of the module's own order: who
// may import whom, that assembly can be switched off, and that no file knows the
// machine it was written on.
package lattice
