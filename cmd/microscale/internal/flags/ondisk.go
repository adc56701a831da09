package flags

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// onDisk are the placeholders of flags and arguments that are files and directories on disk, and never URLs.
var onDisk = []string{"FILE", "DIR", "RECEIPT"}

// named says what the values of flags with these placeholders name: they are not empty.
var named = map[string]string{
	"FILE": "file", "DIR": "directory", "RECEIPT": "file", "MODEL": "model", "ORIGINAL": "checkpoint",
	"OWNER/NAME": "model on the Hugging Face Hub",
}

// address matches a URL of any scheme.
var address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// OnDisk returns an error if the path that an argument or flag names is a URL, from which a path such as ./s3:/ would be made.
func OnDisk(name, path string) error {
	if !address.MatchString(path) {
		return nil
	}
	return show.Misuse("%s: %s is a URL, want a path on disk: name a local one, and copy it with the programs of the store", name,
		show.Printable(path))
}

// CheckOnDisk applies OnDisk to the flags and arguments of cmd with placeholders of paths. A flag that is given, and names
// something, is not empty.
func CheckOnDisk(cmd *cobra.Command, args []string) (err error) {
	names := strings.Fields(cmd.Use)[1:]
	for i := range min(len(names), len(args)) {
		if name := strings.Trim(names[i], "[]"); slices.Contains(onDisk, name) {
			err = cmp.Or(err, OnDisk(name, args[i]))
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		placeholder, _ := pflag.UnquoteUsage(f)
		kind, ok := named[placeholder]
		if !ok {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if slices.Contains(values, "") {
			err = cmp.Or(err, show.Misuse("--%s is empty: name a %s, or omit it", f.Name, kind))
		}
		for _, value := range values {
			if slices.Contains(onDisk, placeholder) {
				err = cmp.Or(err, OnDisk("--"+f.Name, value))
			}
		}
	})
	return err
}
