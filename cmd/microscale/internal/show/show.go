// Package show prints what commands show to people and programs: figures with units, tables, progress
// on standard error, errors of one line, and JSON. It imports nothing of this module.
package show
