package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
)

const completionLong = `Print a script that completes commands, flags, formats and profiles in a shell.`

const completionExample = `  source <(microscale completion bash)
  source <(microscale completion zsh)
  microscale completion fish | source
  microscale completion powershell | Out-String | Invoke-Expression`

// addCompletion adds cobra's completion command to root, which writes to the output
// that is set by then, with an example for every shell.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.DisableFlagsInUseLine = true
		const group = "Shells"
		cmd.AddGroup(&cobra.Group{ID: group, Title: group})
		for _, shell := range cmd.Commands() {
			shell.GroupID = group
		}
		flags.AddHelpAll(cmd)
		cmd.Use, cmd.Long, cmd.Example = "completion SHELL", completionLong, completionExample
	}
}
