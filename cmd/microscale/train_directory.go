package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/train"
)

// trainOptions are the flags of the output directory of train.
type trainOptions struct {
	out           string
	resume, force bool
}

// directory checks the flags of the output directory. With --resume, it sets the flags
// of the run there that the command line does not give, or reports that the run is complete.
func (o *trainOptions) directory(cmd *cobra.Command, job *ranks.Job) (done bool, err error) {
	switch {
	case o.resume && o.out == "":
		return false, show.Misuse("--resume needs --out: name the directory of the interrupted run")
	case o.force && o.out == "":
		return false, show.Misuse("--force needs --out: name the directory of the run to replace")
	case o.resume:
		arguments, err := ranks.FromFirst(job, func() ([]string, error) {
			_, arguments, err := (&train.Config{Out: o.out}).LastCheckpoint()
			if errors.Is(err, train.ErrDone) {
				return nil, nil
			}
			return append([]string{}, arguments...), err
		})
		if err != nil || arguments == nil {
			return err == nil, flags.WithFlag(err)
		}
		return false, flags.TakeArguments(cmd, arguments)
	case o.out != "" && !o.force:
		return false, flags.WithFlag((&train.Config{Out: o.out}).CheckOut())
	}
	return false, nil
}
