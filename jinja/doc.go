// Package jinja renders chat templates as Python's Jinja2 3.1 does in the environment of transformers:
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, raise_exception,
// strftime_now, {% generation %}, and a tojson that does not escape HTML.
//
//	source → tokens (lex.go) → closures (parse.go, statements.go) → text
//
// Values have the semantics of Python: undefined values print as nothing, and are an error in
// arithmetic, calls and attributes; filters such as map return generators; lists cannot be changed.
//
// What is not implemented is an error, not another text:
//   - {% include %}, {% import %}, {% extends %}, {% block %}, {% autoescape %}
//   - the filters of unsupportedFilters
//   - the methods of unsupportedMethods, splitlines with keepends, index of a list with bounds
//   - names of characters such as \N{DASH}, surrogates
//   - integers outside 64 bits, complex numbers, attributes of numbers such as real
//   - in str.format: specifications with fields, zeros between grouped digits; # for floats, also of the operator %
//   - {% set %} of an attribute of a namespace together with other names
//
// These differ from Jinja2:
//   - escape and safe return plain strings.
//   - Filters compute eagerly, so their errors come earlier.
//   - An unknown filter or test is an error where it is applied, not in parts that are not rendered.
//   - Functions, methods and generators print without an address.
//   - self and lipsum are undefined.
//   - sameas compares numbers and strings by type and value.
//   - Float literals too large for float64 are infinite everywhere. In Jinja2, some uses are errors.
//   - Case mappings are those of the Unicode version of package unicode.
//
// Rendering has no limits on time, memory and stack: render the template of a stranger in a separate process, as
// cmd/microscale/internal/chat does.
package jinja
