// Package flags holds what the commands of microscale share: flags whose values are
// names of a table, errors of usage with suggestions, tables, progress on standard
// error, and the text and JSON of figures.
package flags
