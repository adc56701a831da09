// Package lattice contains only tests of the module's structure: which package may import
// which, that the tag purego disables all assembly, that no file names a path of one machine,
// and that every public package has an example.
package lattice
