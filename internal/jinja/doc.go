// Package jinja renders chat templates as Python's Jinja2 3.1 does in the environment of transformers:
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, raise_exception,
// strftime_now, {% generation %}, and a tojson that does not escape HTML.
//
//	source → tokens (lex.go) → closures (parse.go, statements.go) → text
//
// Values have the semantics of Python: undefined values print as nothing, and are an error in
// arithmetic, calls and attributes; filters such as map return generators; lists cannot be changed.
// A construct without an implementation is an error, not another text. Differences from Jinja2:
// integers have 64 bits, {% include %}, {% import %}, {% extends %} and {% block %} are errors, escape
// returns a plain string, and filters compute eagerly.
//
// Rendering has no limits on time, memory and stack: package chat renders in a separate process.
package jinja
