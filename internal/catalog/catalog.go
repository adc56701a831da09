// Package catalog prints the tables of what there is: formats, the conventions in
// which clients read them, and matrix units.
package catalog
