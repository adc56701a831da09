package flags

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/durable"
)

// WriteManPages writes a man page of section 1 to dir for root and for each listed command below it.
func WriteManPages(root *cobra.Command, dir string) error {
	file := filepath.Join(dir, manName(root)+".1")
	if err := durable.WriteWhole(file, []byte(manPage(root)), os.Rename); err != nil {
		return err
	}
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() {
			continue
		}
		if err := WriteManPages(cmd, dir); err != nil {
			return err
		}
	}
	return nil
}

// manName returns the name of the page of cmd, such as microscale-bench-gemm.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of cmd in the macros of man(7).
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Microscale %s\"\n", roff(strings.ToUpper(manName(cmd))), roff(show.Version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(manShort(cmd)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		b.WriteString(manParagraph(paragraph))
	}
	var commands []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			commands = append(commands, sub.Name()+"  "+sub.Short)
		}
	}
	b.WriteString(manTerms("COMMANDS", commands))
	b.WriteString(manTerms("OPTIONS", slices.Collect(strings.Lines(cmd.LocalFlags().FlagUsages()))))
	if cmd.HasExample() {
		b.WriteString(".SH EXAMPLES\n" + verbatim(cmd.Example))
	}
	b.WriteString(".SH EXIT STATUS\n0: done. 1: failed; one line on standard error gives the problem. 2: wrong usage.\n")
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(cmd.Parent())))
	}
	return b.String()
}

// manShort returns what the page of cmd is about: the root has no short description.
func manShort(cmd *cobra.Command) string {
	if cmd.Short != "" {
		return cmd.Short
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(cmd.Long, "\n", " "), ".")
	return first
}

// manParagraph returns a paragraph of help. One with indented lines is a table and keeps its lines.
func manParagraph(text string) string {
	if strings.HasPrefix(text, "  ") || strings.Contains(text, "\n  ") || strings.Contains(text, "\n\t") {
		return ".PP\n" + verbatim(text)
	}
	return ".PP\n" + roff(text) + "\n"
}

// manTerms returns a section of terms with their descriptions, which two spaces separate.
func manTerms(title string, entries []string) string {
	if len(entries) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".SH %s\n", title)
	for _, e := range entries {
		term, description, _ := strings.Cut(strings.TrimSpace(e), "  ")
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", roff(term), roff(strings.TrimSpace(description)))
	}
	return b.String()
}

// verbatim returns text whose lines are kept.
func verbatim(text string) string { return ".nf\n" + roff(text) + "\n.fi\n" }

// roff escapes the characters that roff interprets: backslashes, hyphens that it would make
// typographic, and control characters at the start of a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimRight(text, "\n"))
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
