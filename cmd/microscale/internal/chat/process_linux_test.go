package chat

import (
	"bytes"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endless is a template that computes for longer than any limit.
const endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"

// helper returns this program as a process that runs TestHelper with arguments.
func helper(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"-test.run=^TestHelper$", "--"}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestHelper renders in a process of the tests below. It does nothing by itself.
func TestHelper(t *testing.T) {
	switch flag.Arg(0) {
	case "render": // after the test changed the file of this program
		fmt.Println("started")
		_, _ = io.ReadAll(os.Stdin) // until the test closes it
		text, err := Render(t.Context(), "{{ messages[0].content }}", []Message{{Role: "user", Content: "Hi"}}, Options{})
		fmt.Printf("rendered %q, %v\n", text, err)
	case "endless":
		_, _ = job{Template: endless, Conversations: make([][]Message, 1)}.run(t.Context(), time.Hour)
	}
}

// TestReplacedProgram replaces or removes the file of a running program. It renders as before, and executes no
// other file.
func TestReplacedProgram(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(path, marker string) error{
		"removed": func(path, _ string) error { return os.Remove(path) },
		"replaced": func(path, marker string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("#!/bin/sh\ntouch "+marker+"\n"), 0o700))
		},
	} {
		dir := t.TempDir()
		path, marker := filepath.Join(dir, "program"), filepath.Join(dir, "marker")
		if err := os.WriteFile(path, data, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := helper(path, "render")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		started := make([]byte, len("started\n"))
		_, err = io.ReadFull(stdout, started)
		if err := errors.Join(err, change(path, marker), stdin.Close()); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(stdout)
		if err := errors.Join(err, cmd.Wait()); err != nil || !strings.HasPrefix(string(text), `rendered "Hi", <nil>`) {
			t.Errorf("%s: got %s (%v)", what, text, err)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("%s: the other file was executed", what)
		}
	}
}

// TestOwnLimit checks that a process ends itself after its time, whatever its parent does.
func TestOwnLimit(t *testing.T) {
	var in bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(job{Template: endless, Conversations: make([][]Message, 1),
		Limit: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", childArgument)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(in.Bytes()); err != nil {
		t.Fatal(err)
	}
	exit := (*exec.ExitError)(nil)
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != tooMuchTime || !errors.Is(failure(exit), ErrRunaway) {
		t.Errorf("got %v, want exit status %d", err, tooMuchTime)
	}
}

// TestOrphan kills a process while another renders for it. That one ends, too.
func TestOrphan(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := helper(own, "endless")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	orphan := 0
	for deadline := time.Now().Add(20 * time.Second); orphan == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing renders")
		}
		children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent.Process.Pid))
		for _, name := range children {
			text, _ := os.ReadFile(name)
			_, _ = fmt.Sscan(string(text), &orphan)
		}
	}
	time.Sleep(200 * time.Millisecond) // until it renders
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	for deadline := time.Now().Add(20 * time.Second); syscall.Kill(orphan, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan)); strings.Contains(string(status), ") Z ") {
			return // nobody waits for it
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(orphan, syscall.SIGKILL)
			t.Fatal("the process renders on after its parent was killed")
		}
	}
}
