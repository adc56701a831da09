package main

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/durable"
)

// A sharedDocument is a measurement as a file for others: the processor and what it does, and nothing about
// the user, the machine's name or its files.
type sharedDocument struct {
	Date       string          `json:"date"`
	Program    versionDocument `json:"program"` // with the features of the processor and the rows of the kernel tables
	Processor  string          `json:"processor"`
	Kind       string          `json:"kind"` // as kernels are ordered and tuned for it
	Processors int             `json:"processors"`
	SharedCore bool            `json:"shared_cores"` // several of these processors are threads of one core
	Threads    int             `json:"threads"`
	sweepDocument
}

// writeShare writes the file of --share.
func writeShare(path string, threads int, s sweepDocument) error {
	s.Report = "" // a path
	m := host.ThisMachine()
	d := sharedDocument{
		Date:      time.Now().UTC().Format(time.DateOnly),
		Program:   versionDocument{Version: show.Version(), Go: m.Go, Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernels: m.Tier},
		Processor: m.CPU, Kind: cpu.This().Name, Processors: m.Processors, SharedCore: host.SharedCores(), Threads: threads, sweepDocument: s,
	}
	d.Program.list()
	var b bytes.Buffer
	if err := show.PrintJSON(&b, d); err != nil {
		return err
	}
	if err := durable.WriteWhole(path, b.Bytes(), durable.RenameNew); err != nil {
		return fmt.Errorf("--share: %w", err)
	}
	return nil
}
