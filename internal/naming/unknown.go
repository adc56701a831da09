package naming

import (
	"fmt"
	"slices"
	"strings"
)

// An UnknownError is the error for a name that is not in a table. Its text names the most similar
// choices, or all if none is similar.
type UnknownError struct {
	Kind    string // what the table lists, such as "recipe"
	Name    string
	Choices []string
	Or      string // what else is accepted, such as "a TOML file"
}

// Unknown returns an *UnknownError.
func Unknown(kind, name string, choices []string) error {
	return &UnknownError{Kind: kind, Name: name, Choices: choices}
}

func (e *UnknownError) Error() string {
	problem := fmt.Sprintf("unknown %s %q: ", e.Kind, e.Name)
	if near := Nearest(e.Name, e.Choices); len(near) > 0 {
		return problem + "did you mean " + strings.Join(near, " or ") + "?"
	}
	list := strings.Join(e.Choices, ", ")
	switch {
	case list == "" && e.Or == "":
		return problem + "there is none"
	case list == "":
		return problem + "use " + e.Or
	case e.Or != "":
		list += ", or " + e.Or
	}
	return problem + "use one of " + list
}

// Nearest returns the names that begin with name; else those at the smallest edit
// distance from it; else those whose part before the hyphen is. The distance is at most
// a third of the length, or 1 for short names, and the first letter is the same. If
// names have the part of name before its hyphen, such as int8 of int8-g64, only these
// are returned, and all of them if none is near.
func Nearest(name string, names []string) []string {
	whole := func(n string) string { return n }
	family := func(n string) string {
		n, _, _ = strings.Cut(n, "\t") // without the description for the shell
		n, _, _ = strings.Cut(n, "-")
		return n
	}
	name = strings.ToLower(name)
	if first := family(name); first != name {
		own := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.EqualFold(family(n), first) })
		if near := nearest(name, own, whole); len(near) > 0 {
			return near
		}
		if near := nearest(first, own, family); len(near) > 0 {
			return near
		}
	}
	for _, part := range []func(string) string{whole, family} {
		if near := nearest(name, names, part); len(near) > 0 {
			return near
		}
	}
	return nil
}

func nearest(name string, names []string, part func(string) string) (near []string) {
	smallest := max(1, len(name)/3)
	for _, n := range names {
		n, _, _ = strings.Cut(n, "\t") // without the description for the shell
		candidate := strings.ToLower(part(n))
		if name == "" || candidate == "" || candidate[0] != name[0] {
			continue
		}
		d := editDistance(candidate, name)
		if len(name) > 1 && strings.HasPrefix(candidate, name) {
			d = 0
		}
		if d < smallest {
			near, smallest = nil, d
		}
		if d == smallest {
			near = append(near, n)
		}
	}
	return near
}

// editDistance returns the minimum number of bytes to insert, delete, replace or swap
// with the next one in order to change a into b.
func editDistance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			if a[i] == b[j] {
				next[j+1] = row[j]
				continue
			}
			next[j+1] = 1 + min(row[j], row[j+1], next[j])
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], 1+before[j-1])
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
