package cpu

import "slices"

// A Form is a row of a kernel table: what a kernel computes, in instructions of some features.
type Form struct {
	Package   string
	Primitive string // what it computes, such as "amax of BF16"
	Needs     Set    // none: portable Go
}

// tables return the rows of the kernel tables of the program.
var tables []func() []Form

// AddTable adds a kernel table, best row first, to those that Forms returns. Packages call it as they are
// initialized. describe returns what a row computes and the features that it needs.
func AddTable[K any](name string, rows *[]K, describe func(row *K) (primitive string, needs Set)) {
	tables = append(tables, func() (forms []Form) {
		for i := range *rows {
			primitive, needs := describe(&(*rows)[i])
			forms = append(forms, Form{name, primitive, needs})
		}
		return forms
	})
}

// Forms returns the rows of the kernel tables of the program, without repetitions: the forms of a primitive
// follow each other, in the order in which their package tries them.
func Forms() (forms []Form) {
	for _, table := range tables {
		for _, f := range table() {
			last := 0
			for i, other := range forms {
				if other.Package == f.Package && other.Primitive == f.Primitive {
					last = i + 1
				}
			}
			switch {
			case slices.Contains(forms, f):
			case last > 0:
				forms = slices.Insert(forms, last, f)
			default:
				forms = append(forms, f)
			}
		}
	}
	return forms
}
