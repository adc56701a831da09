package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// exitNoMount is the exit status of a process that cannot mount a filesystem.
const exitNoMount = 77

// ownMounts are attributes of a process with a private mount namespace.
func ownMounts() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// mounting runs the calling test again as a process with private mounts, which gets the
// arguments behind its flags. It skips the test if such a process cannot start or mount.
func mounting(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd, out, errors := process(t, args...)
	cmd.Args[1] = "-test.run=^" + test + "$"
	cmd.SysProcAttr = ownMounts()
	err := cmd.Run()
	switch {
	case cmd.ProcessState == nil:
		t.Skipf("a process with mounts of its own cannot be started: %v", err)
	case cmd.ProcessState.ExitCode() == exitNoMount:
		t.Skipf("a filesystem cannot be mounted: %s", errors)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errors.String()
}

// mount mounts a filesystem of the given size, or ends the process.
func mount(dir string, flags uintptr, size string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitNoMount)
	}
}

// fullDisk mounts a filesystem of the given size, runs the command, prints the files that
// it left there, and exits with its status.
func fullDisk(dir, size string, args []string) {
	mount(dir, 0, size)
	status := run(args, os.Stdin, os.Stdout, os.Stderr)
	left, err := exec.Command("find", dir, "-mindepth", "1").Output()
	fmt.Print(string(left))
	if err != nil {
		fmt.Print(err)
	}
	os.Exit(status)
}

// TestReportFullDisk checks that an evaluation is printed if the disk has no space for its report.
func TestReportFullDisk(t *testing.T) {
	if flag.NArg() > 0 {
		fullDisk(flag.Arg(0), "4k", flag.Args()[1:])
	}
	dir := t.TempDir()
	model, disk := filepath.Join(dir, "model"), filepath.Join(dir, "disk")
	done(t, tinyRun("--steps", "1", "--out", model)...)
	if err := os.Mkdir(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(disk, "r.html")
	status, stdout, stderr := mounting(t, disk, "eval", model, "--text", filepath.Join(model, "config.json"), "--report", report)
	want := "microscale: write a report: " + report + ": no space left on device\n"
	if status != exitFailed || !strings.Contains(stdout, "nats per token") || strings.Contains(stdout, disk) || stderr != want {
		t.Errorf("exit status %d, %q and %q", status, stdout, stderr)
	}
}
