// Package catalog prints the tables of formats, of the conventions in which clients
// read them, and of matrix units.
package catalog
