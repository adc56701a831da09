package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// Statistics beside a destination have its name with both suffixes, and the activations from which they are collected with the first.
const (
	statisticsSuffix = windows.OwnName + "statistics"
	statisticsEnd    = ".safetensors"
)

// A collectOrder is what the first rank tells the others: Calibration of the statistics that all collect. Of several ranks that mpirun
// starts, the first quantizes. The others wait until it calls them to collect statistics with it.
type collectOrder struct {
	Out         string
	Hessian     bool
	Activations map[string]string
}

// join joins the job of the MPI launcher that started this process, if there is one.
func (t *calibrationText) join(cmd *cobra.Command) (err error) {
	if t.ranks, err = ranks.Connect(cmd, *t.library); err != nil {
		return err
	}
	if t.follow && t.ranks.Group() != nil {
		return show.Misuse("--sequential cannot be divided among ranks, as no window passes a layer before all have passed the one below it: " +
			"start one process")
	}
	return nil
}

// callRanks lets the other ranks collect statistics.
func (t *calibrationText) callRanks(c evaluation.Calibration) error {
	t.called = true
	_, err := ranks.FromFirst(t.ranks, func() (*collectOrder, error) { return &collectOrder{c.Out, c.Hessian, c.Activations}, nil })
	return err
}

// endRanks ends the other ranks with the error of the first.
func (t *calibrationText) endRanks(err error) error {
	if !t.called {
		_, err = ranks.FromFirst(t.ranks, func() (*collectOrder, error) { return nil, err })
		return err
	}
	_, err = ranks.FromFirst(t.ranks, func() (struct{}, error) { return struct{}{}, err })
	return err
}

// assist does the part of a rank after the first.
func (t *calibrationText) assist(cmd *cobra.Command, model string, f *runFlags) error {
	o, err := ranks.FromFirst[*collectOrder](t.ranks, nil)
	if err != nil || o == nil {
		return err
	}
	c := evaluation.Calibration{Out: o.Out, Hessian: o.Hessian, Activations: o.Activations}
	if err = t.configure(cmd, &c, model, f); err == nil {
		_, _, err = c.Statistics(cmd.Context())
	}
	_ = t.ranks.Settle(err) // an error of all ranks is the first one's, too
	_, err = ranks.FromFirst[struct{}](t.ranks, nil)
	return err
}

// configure completes what collects the statistics Out of a model.
func (t *calibrationText) configure(cmd *cobra.Command, c *evaluation.Calibration, model string, f *runFlags) error {
	c.Text, c.Stream, c.Memory = t.file, strings.TrimSuffix(c.Out, statisticsEnd), int64(*t.memory)
	c.Ranks, c.Threads = t.ranks.Group(), t.ranks.Threads(int(*f.threads))
	return calibrating(cmd, c, model)
}
