package recipe

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// Find returns the recipe of the given name, or of a TOML file if the name ends in .toml.
//
// The file names a base recipe and the settings to change: the names of Switches, and tables for one
// operand and direction.
//
//	name = "mxfp8-floor"          # default: the name of the file; not that of a built-in recipe
//	base = "mxfp8"
//	scale_rule = "floor"
//	high_precision = ["wgrad"]
//
//	[grad.rowwise]                # input, weight or grad; rowwise or columnwise
//	format = "mxfp8-e5m2"
//	stochastic_rounding = true    # and scale_rule, power_2_scale, random_hadamard_transform
//
// An unknown key is an error that names its line, and a missing file one that matches
// fs.ErrNotExist.
func Find(name string) (Recipe, error) {
	if strings.EqualFold(filepath.Ext(name), ".toml") {
		return load(name)
	}
	return Lookup(name)
}

// maxFile is the maximum size of a recipe file in bytes. A file that sets everything has less
// than 2 KiB.
const maxFile = 64 << 10

// load reads a recipe from a TOML file and validates it.
func load(path string) (Recipe, error) {
	text, err := limits.ReadFile(path, maxFile)
	if err != nil {
		return Recipe{}, fmt.Errorf("recipe file %s: %w", path, limits.Cause(err))
	}
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	r, err := parse(string(text), name)
	if err != nil {
		return Recipe{}, fmt.Errorf("recipe file %s: %w", path, err)
	}
	return r, nil
}

// parse parses the text of a recipe file.
func parse(text, name string) (Recipe, error) {
	file, err := decode(text)
	if err != nil {
		return Recipe{}, err
	}
	if file["base"] == nil {
		return Recipe{}, errors.New("base is missing: name the recipe to start from")
	}
	base, err := Lookup(fmt.Sprint(file["base"]))
	if err != nil {
		return Recipe{}, atLine(text, "", "base", err)
	}
	r := base
	r.Name, r.Doc = name, "from a file, based on "+base.Name
	if v := file["name"]; v != nil {
		r.Name = fmt.Sprint(v)
	}
	if err := checkName(r.Name); err != nil {
		return Recipe{}, atLine(text, "", "name", err)
	}
	if v := file["doc"]; v != nil {
		r.Doc = fmt.Sprint(v)
	}
	for _, s := range switches {
		if v, ok := file[s.Name]; ok {
			value, err := valueOf(v)
			if err == nil {
				err = r.Set(s.Name, value)
			}
			if err != nil {
				return Recipe{}, atLine(text, "", s.Name, err)
			}
		}
	}
	if err := r.setQuantizers(text, file); err != nil {
		return Recipe{}, err
	}
	return r, r.Validate()
}

// decode returns the keys of a recipe file, all of them known.
func decode(text string) (file map[string]any, err error) {
	if err := limits.CheckTOML([]byte(text)); err != nil {
		return nil, err
	}
	if _, err := toml.Decode(text, &file); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("line %d: %s", syntax.Position.Line, limits.Text(syntax.Message))
		}
		return nil, err
	}
	return file, checkKeys(text, file)
}

// setQuantizers sets what the tables of operands and directions of a file name.
func (r *Recipe) setQuantizers(text string, file map[string]any) error {
	for i, operand := range operandNames {
		o := [...]*Operand{&r.Input, &r.Weight, &r.Grad}[i]
		for j, direction := range directionNames {
			q := [...]*quant.Quantizer{&o.Rowwise, &o.Columnwise}[j]
			keys := table(table(file, operand), direction)
			for _, k := range quantizerKeys {
				v, ok := keys[k.name]
				if !ok {
					continue
				}
				value, err := valueOf(v)
				if err == nil {
					err = k.set(q, value)
				}
				if err != nil {
					return atLine(text, operand+"."+direction, k.name, err)
				}
			}
		}
	}
	return nil
}

// checkName returns an error if a recipe file's name is that of a built-in recipe, with which
// its results would be confused, or is not valid in a file name.
func checkName(name string) error {
	if _, err := Lookup(name); err == nil {
		return fmt.Errorf("the name %s is taken by a built-in recipe: choose another name", name)
	}
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.+ ", r)
	}
	if strings.TrimLeft(name, ". ") == "" || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("invalid name %q: use letters, digits, spaces, and - _ . +", name)
	}
	return nil
}

var (
	operandNames   = [...]string{"input", "weight", "grad"}
	directionNames = [...]string{quant.Rowwise.String(), quant.Columnwise.String()}
)

// quantizerKeys lists the keys of a table for one quantizer.
var quantizerKeys = []struct {
	name string
	set  func(q *quant.Quantizer, value string) error
}{
	{"format", func(q *quant.Quantizer, value string) error {
		f, err := lookupFormat(value)
		*q = refit(*q, f)
		return err
	}},
	{"scale_rule", func(q *quant.Quantizer, value string) error {
		if q.Format.Scale != format.E8M0 {
			return fmt.Errorf("got %s, want a format with E8M0 scales", q.Format)
		}
		return q.Rule.UnmarshalText([]byte(value))
	}},
	{"power_2_scale", func(q *quant.Quantizer, value string) (err error) {
		q.PowerOfTwo, err = parseBool(value)
		return err
	}},
	{"random_hadamard_transform", func(q *quant.Quantizer, value string) (err error) {
		q.Hadamard, err = parseBool(value)
		return err
	}},
	{"stochastic_rounding", func(q *quant.Quantizer, value string) error {
		on, err := parseBool(value)
		if q.Rounding = format.NearestEven; on {
			q.Rounding = format.Stochastic
		}
		return err
	}},
}

// checkKeys returns an error for the first unknown key, with its line.
func checkKeys(text string, file map[string]any) error {
	names := []string{"name", "doc", "base"}
	for _, s := range switches {
		names = append(names, s.Name)
	}
	if err := checkTable(text, "", file, append(names, operandNames[:]...)); err != nil {
		return err
	}
	names = nil
	for _, k := range quantizerKeys {
		names = append(names, k.name)
	}
	for _, operand := range operandNames {
		if err := checkTable(text, operand, file[operand], directionNames[:]); err != nil {
			return err
		}
		for _, direction := range directionNames {
			if err := checkTable(text, operand+"."+direction, table(file, operand)[direction], names); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTable returns an error unless v is a table whose keys are all in names.
func checkTable(text, path string, v any, names []string) error {
	if v == nil {
		return nil
	}
	keys, ok := v.(map[string]any)
	if !ok {
		return atLine(text, "", path, fmt.Errorf("%s is a table of %s, not a value", path, strings.Join(names, ", ")))
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(names, k) {
			return atLine(text, path, k, naming.Unknown("key", k, names))
		}
	}
	return nil
}

// table returns a table within a table, or nil.
func table(in map[string]any, name string) map[string]any {
	t, _ := in[name].(map[string]any)
	return t
}

// valueOf returns a TOML value in the form of Switch: lists separated by commas.
func valueOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case []any:
		list := make([]string, len(v))
		for i, e := range v {
			name, ok := e.(string)
			if !ok {
				return "", fmt.Errorf("list element: got %v, want a name in quotes", e)
			}
			list[i] = name
		}
		return strings.Join(list, ","), nil
	}
	return "", fmt.Errorf("got %v, want a string, an integer, true, false, or a list of names", v)
}

// atLine adds the line of a key, in the table of the given path, to err. The parser does not
// keep lines, so atLine searches the text. It adds no line if the key is written unusually,
// such as in quotes.
func atLine(text, path, key string, err error) error {
	want := strings.TrimPrefix(path+"."+key, ".")
	in := ""
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.ReplaceAll(line, " ", "")
		header, isHeader := strings.CutPrefix(line, "[")
		left, _, isPair := strings.Cut(line, "=")
		full := strings.TrimPrefix(in+"."+left, ".")
		if isHeader {
			in = strings.TrimSuffix(header, "]")
			full = in
		}
		// A longer name starts with the key; a shorter one holds it in an inline table.
		inline := isPair && strings.HasPrefix(want, full+".")
		if (isHeader || isPair) && (full == want || strings.HasPrefix(full, want+".") || inline) {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return err
}
