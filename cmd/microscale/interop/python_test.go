package interop

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var noSkip = flag.Bool("no-skip", false, "fail where a test would be skipped: for runs that have a network and time, with -torch, "+
	"-build and -recorded")

// skipf skips the test, or fails it under -no-skip.
func skipf(t testing.TB, message string, arguments ...any) {
	t.Helper()
	if *noSkip {
		t.Fatalf("-no-skip: "+message, arguments...)
	}
	t.Skipf(message, arguments...)
}

// python returns the interpreter of a virtual environment with exactly the packages of
// requirements, each pinned as name==version. It skips the test if they cannot be installed.
func python(t testing.TB, requirements ...string) string {
	t.Helper()
	dir := environment(t, strings.Join(requirements, ","), func(dir string) (string, error) {
		if out, err := command(installLimit(), "python3", "-m", "venv", dir); err != nil {
			return "python3 -m venv: " + lastLine(out, err), err
		}
		return install(filepath.Join(dir, "bin", "python"), requirements...)
	})
	return filepath.Join(dir, "bin", "python")
}

// over is python on top of another environment: its interpreter also finds the packages of
// base, which are not installed again. The name of base is part of the name of the environment.
func over(t testing.TB, base string, requirements ...string) string {
	t.Helper()
	name := strings.Join(requirements, ",") + "+" + filepath.Base(filepath.Dir(filepath.Dir(base)))
	dir := environment(t, name, func(dir string) (string, error) {
		if out, err := command(installLimit(), base, "-m", "venv", dir); err != nil {
			return "python3 -m venv: " + lastLine(out, err), err
		}
		interpreter := filepath.Join(dir, "bin", "python")
		const link = `import os, sys, sysconfig; open(os.path.join(sysconfig.get_path("purelib"), "base.pth"), "w").write(sys.argv[1])`
		packages, err := exec.Command(base, "-c", `import sysconfig; print(sysconfig.get_path("purelib"))`).Output()
		if err == nil {
			_, err = command(time.Minute, interpreter, "-c", link, string(packages))
		}
		if err != nil {
			return "its packages cannot be linked to those of " + base, err
		}
		return install(interpreter, requirements...)
	})
	return filepath.Join(dir, "bin", "python")
}

// files returns a directory with the contents of one package, without its dependencies and
// without an interpreter.
func files(t *testing.T, requirement string) string {
	t.Helper()
	return environment(t, requirement, func(dir string) (string, error) {
		return install("python3", "--no-deps", "--target", dir, requirement)
	})
}

// install runs pip and returns the cause of a failure in one line.
func install(interpreter string, arguments ...string) (problem string, err error) {
	arguments = append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--retries=1"},
		arguments...)
	if out, err := command(installLimit(), interpreter, arguments...); err != nil {
		return "pip install: " + lastLine(out, err), err
	}
	return "", nil
}

// scriptLimit limits the time of a script. Those with PyTorch quantize or load many models; those of vocabularies
// tokenize thousands of texts in each.
func scriptLimit() time.Duration {
	if *installTorch || *vocabularies {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// installLimit limits the time of one step of an installation. PyTorch is large.
func installLimit() time.Duration {
	if *installTorch {
		return time.Hour
	}
	return 5 * time.Minute
}

// environment returns a directory in the cache that fill fills once. It has another name until
// it is complete, so that no other process uses it half filled.
func environment(t testing.TB, name string, fill func(dir string) (problem string, err error)) string {
	t.Helper()
	if testing.Short() {
		skipf(t, "-short: %s is not installed", name)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		skipf(t, "%s cannot be installed: %v", name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		skipf(t, "%s cannot be installed: %v", name, err)
	}
	dir := filepath.Join(cache, "microscale-interop", name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		skipf(t, "%s cannot be installed: %v", name, err)
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(dir), name+".*.partial")
	if err != nil {
		skipf(t, "%s cannot be installed: %v", name, err)
	}
	defer os.RemoveAll(unfinished)
	if problem, err := fill(unfinished); err != nil {
		skipf(t, "%s cannot be installed: %s", name, problem)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // else another test was faster
			t.Fatal(err)
		}
	}
	return dir
}

// script runs a Python file of this directory.
func script(t *testing.T, interpreter, name string, arguments ...string) {
	t.Helper()
	scriptOutput(t, interpreter, name, arguments...)
}

// scriptOutput is script with the output as result.
func scriptOutput(t *testing.T, interpreter, name string, arguments ...string) []byte {
	t.Helper()
	if _, err := os.Stat(name); err != nil { // also tells go test's cache that the result depends on it
		t.Fatal(err)
	}
	out, err := command(scriptLimit(), interpreter, append([]string{name}, arguments...)...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

func command(limit time.Duration, name string, arguments ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return exec.CommandContext(ctx, name, arguments...).CombinedOutput()
}

// lastLine returns the last line of output of a failed program, or its error if it has none.
func lastLine(out []byte, err error) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if last := lines[len(lines)-1]; len(last) > 0 {
		return string(last)
	}
	return err.Error()
}
