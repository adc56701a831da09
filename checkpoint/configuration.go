package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
)

// Configuration returns the configuration of a checkpoint with weights in format f.
func (c *Convention) Configuration(f quant.Format, o Settings) any {
	config, _ := c.configured(f, o)
	return config
}

// configured is Convention.configure with the schemes of the convention. f is the block format, or the first.
func (c *Convention) configured(f quant.Format, o Settings) (config, sidecar any) {
	o.Mixed = slices.Clone(o.Mixed)
	for i := range o.Mixed {
		o.Mixed[i].scheme = c.scheme(o.Mixed[i].Format)
	}
	return c.configure(c.scheme(f), o)
}

// configurationKey is a member of config.json. It is also the metadata key for the configuration
// of a file without config.json; clients ignore it there, Read does not.
const configurationKey = "quantization_config"

// Configure returns config, the bytes of a config.json, with the configuration of the convention
// instead of any other.
func (c *Convention) Configure(config []byte, f quant.Format, o Settings) ([]byte, error) {
	config, err := configjson.WithoutMembers(config, configjson.QuantizationKeys...)
	if err != nil {
		return nil, err
	}
	keys := c.keys
	if keys == nil {
		keys = []string{configurationKey}
	}
	for _, key := range keys {
		if config, err = configjson.WithMember(config, key, c.Configuration(f, o)); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// A File is a small file of a checkpoint.
type File struct {
	Name string
	Data []byte
}

// Files returns the files besides config.json from which clients read the configuration.
func (c *Convention) Files(f quant.Format, o Settings) []File {
	if c.sidecar == "" {
		return nil
	}
	_, sidecar := c.configured(f, o)
	data, err := json.MarshalIndent(sidecar, "", "    ")
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return []File{{c.sidecar, append(data, '\n')}}
}

// Sidecar returns the name of the file besides config.json from which clients read the configuration; "" for none.
func (c *Convention) Sidecar() string { return c.sidecar }

// IsSidecar reports whether a file of a checkpoint describes its quantization. It is not copied
// with weights that are stored differently.
func IsSidecar(name string) bool {
	return slices.ContainsFunc(conventions, func(c *Convention) bool { return c.sidecar != "" && c.sidecar == name })
}

// FileFormat returns the value of "format" in the metadata of a file.
func (c *Convention) FileFormat() string {
	if c == nil || c.fileFormat == "" {
		return "pt"
	}
	return c.fileFormat
}

// FileMetadata returns the metadata, a key and a value, that replaces the configuration if there
// is no config.json. ok is false if the metadata describes each weight.
func (c *Convention) FileMetadata(f quant.Format, o Settings) (key, value string, ok bool) {
	if c.metadata {
		return "", "", false
	}
	text, err := json.Marshal(c.Configuration(f, o))
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return configurationKey, string(text), true
}

// exactOrRegexp returns a function that reports whether a module is on an ignore list: by its
// exact name, or by a pattern after "re:", which matches from the beginning.
func exactOrRegexp(ignore []string) func(module string) bool {
	exact := map[string]bool{}
	var patterns []*regexp.Regexp
	for _, entry := range ignore {
		if re, isPattern, err := entryPattern(entry); !isPattern {
			exact[entry] = true
		} else if err == nil { // else checkPatterns reports it
			patterns = append(patterns, re)
		}
	}
	return func(module string) bool {
		return exact[module] || slices.ContainsFunc(patterns, func(re *regexp.Regexp) bool { return re.MatchString(module) })
	}
}

// patternMark begins the entries of ignore lists that are regular expressions.
const patternMark = "re:"

// entryPattern returns the regular expression of an entry of an ignore list. ok is false for a
// name.
func entryPattern(entry string) (re *regexp.Regexp, ok bool, err error) {
	pattern, ok := strings.CutPrefix(entry, patternMark)
	if !ok {
		return nil, false, nil
	}
	re, err = regexp.Compile("^(?:" + pattern + ")")
	return re, true, err
}

// badPattern returns the error of an invalid pattern of an ignore list.
func badPattern(entry string) error {
	_, _, err := entryPattern(entry)
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("%s: %s", e.Code, e.Expr)
	}
	return err
}

// fnmatch returns the regular expression of a pattern of Python's fnmatch: \ and ^ are themselves, and so is [ of a set without end.
func fnmatch(pattern string) *regexp.Regexp {
	re := `(?s)\A`
	for p := []rune(pattern); len(p) > 0; {
		c := p[0]
		p = p[1:]
		switch end := setEnd(p); {
		case c == '*':
			re += ".*"
		case c == '?':
			re += "."
		case c == '[' && end > 0:
			re += setRegexp(p[:end])
			p = p[end+1:]
		default:
			re += regexp.QuoteMeta(string(c))
		}
	}
	return regexp.MustCompile(re + `\z`)
}

// setEnd returns the index of the ] that ends a set of fnmatch, 0 if none does. A ] at the beginning is a member of the set.
func setEnd(p []rune) int {
	from := 0
	if len(p) > 0 && p[0] == '!' {
		from = 1
	}
	if len(p) > from {
		if n := slices.Index(p[from+1:], ']'); n >= 0 {
			return from + 1 + n
		}
	}
	return 0
}

// setRegexp returns the regular expression of a set. Ranges whose ends are in the wrong order are empty.
func setRegexp(set []rune) string {
	negated := set[0] == '!'
	if negated {
		set = set[1:]
	}
	ranges := ""
	for len(set) > 0 {
		n := 1
		if len(set) > 2 && set[1] == '-' {
			n = 3
		}
		if from, to := set[0], set[n-1]; from <= to {
			ranges += fmt.Sprintf(`\x{%x}-\x{%x}`, from, to)
		}
		set = set[n:]
	}
	switch {
	case negated && ranges == "":
		return "."
	case negated:
		return "[^" + ranges + "]"
	case ranges == "":
		return `[^\x{0}-\x{10ffff}]`
	}
	return "[" + ranges + "]"
}

// exactOrWildcard is exactOrRegexp for patterns of fnmatch, by which Model Optimizer lists modules. * also matches
// periods.
func exactOrWildcard(ignore []string) func(module string) bool {
	exact := map[string]bool{}
	var patterns []*regexp.Regexp
	for _, entry := range ignore {
		exact[entry] = true
		if strings.ContainsAny(entry, "*?[") {
			patterns = append(patterns, fnmatch(entry))
		}
	}
	return func(module string) bool {
		return exact[module] || slices.ContainsFunc(patterns, func(re *regexp.Regexp) bool { return re.MatchString(module) })
	}
}

// withinModules is exactOrRegexp for entries that match any run of words between the periods of a
// module name.
func withinModules(ignore []string) func(module string) bool {
	entries := map[string]bool{}
	for _, entry := range ignore {
		if entry = strings.Trim(entry, "."); entry != "" {
			entries[entry] = true
		}
	}
	return func(module string) bool {
		for run := range dotted(module) {
			if entries[run] {
				return true
			}
		}
		return false
	}
}

// dotted returns the runs of words between the periods of a module's name: a.b.c, a.b, a, b.c, b, c in any order.
func dotted(module string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for from := range len(module) {
			if from > 0 && module[from-1] != '.' {
				continue
			}
			for to := from + 1; to <= len(module); to++ {
				if (to == len(module) || module[to] == '.') && !yield(module[from:to]) {
					return
				}
			}
		}
	}
}

// An ignoreSyntax says how clients match modules with the entries of an ignore list.
type ignoreSyntax uint8

const (
	regexps   ignoreSyntax = iota // exact names, and regular expressions after "re:"
	wildcards                     // exact names, and wildcards
	anyRun                        // any run of the words between the periods of the name
	endings                       // the end of the name
)

// claims reports whether a configuration without quant_method is of the convention.
func (c *Convention) claims(config json.RawMessage) bool {
	var members map[string]any
	if len(c.marks) == 0 || json.Unmarshal(config, &members) != nil {
		return false
	}
	return !slices.ContainsFunc(c.marks, func(mark string) bool {
		value := members[mark]
		return value == nil || value == "" || value == 0.0
	})
}

// Ignored returns a function that reports whether clients find a module on an ignore list of the
// convention.
func (c *Convention) Ignored(ignore []string) func(module string) bool {
	matchers := [...]func([]string) func(string) bool{regexps: exactOrRegexp, wildcards: exactOrWildcard, anyRun: withinModules,
		endings: endsWith}
	return matchers[c.patterns](ignore)
}
