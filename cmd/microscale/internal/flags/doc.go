// Package flags defines the flags that commands share, such as those whose values are names of a
// table, and what belongs to them: help, files of flags, errors of usage with suggestions, command lines
// to repeat, and man pages.
package flags
