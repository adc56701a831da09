// Mutate changes one place of a package at a time, runs its tests, and prints the changes that no test notices:
//
//	go run ./internal/mutate ./convert
//	go run ./internal/mutate -n 40 -run 'Merge|Resume' ./convert
//
// The source is unchanged: go test reads each mutant through an overlay. A survivor is a missing test, or a change
// without an effect, such as a larger buffer.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	number := flag.Int("n", 0, "try `N` mutants, chosen by -seed; 0: all")
	seed := flag.Uint64("seed", 1, "seed `N` of the choice")
	run := flag.String("run", "", "run only tests that match `REGEXP`")
	file := flag.String("file", "", "change only files whose name has `TEXT`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/mutate [flags] PACKAGE")
		os.Exit(2)
	}
	survivors, err := mutate(flag.Arg(0), options{*number, *seed, *run, *file})
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	case survivors > 0:
		os.Exit(1)
	}
}

type options struct {
	number    int
	seed      uint64
	run, file string
}

// mutate tests the mutants of a package and returns the number of survivors.
func mutate(pkg string, o options) (survivors int, err error) {
	files, err := sources(pkg)
	if err != nil {
		return 0, err
	}
	var all []mutant
	for _, name := range files {
		if !strings.Contains(filepath.Base(name), o.file) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		found, err := mutantsOf(name, text)
		if err != nil {
			return 0, err
		}
		all = append(all, found...)
	}
	if r := rand.New(rand.NewPCG(o.seed, 0)); o.number > 0 && o.number < len(all) {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:o.number]
	}
	start := time.Now()
	switch result, err := test(pkg, o.run, nil, 0); {
	case err != nil:
		return 0, err
	case result != survived:
		return 0, fmt.Errorf("%s: its tests %s without a change", pkg, result)
	}
	limit := 5*time.Since(start) + 10*time.Second
	counts := map[outcome]int{}
	for _, m := range all {
		result, err := test(pkg, o.run, &m, limit)
		if err != nil {
			return 0, err
		}
		if counts[result]++; result == survived {
			fmt.Println(m)
		}
	}
	fmt.Printf("%d mutants: %d fail, %d survive, %d do not compile\n", len(all), counts[killed], counts[survived], counts[invalid])
	return counts[survived], nil
}

// sources returns the files of a package without its tests.
func sources(pkg string) (paths []string, err error) {
	out, err := exec.Command("go", "list", "-json=Dir,GoFiles", pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", pkg, err)
	}
	var listed struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		return nil, err
	}
	for _, name := range listed.GoFiles {
		paths = append(paths, filepath.Join(listed.Dir, name))
	}
	return paths, nil
}

// An outcome is what the tests do.
type outcome string

const (
	killed   outcome = "fail"
	survived outcome = "pass"
	invalid  outcome = "do not compile"
)

// testsFailed matches the line of a package whose tests ran and failed, with their time.
var testsFailed = regexp.MustCompile(`(?m)^FAIL\t\S+\t[0-9.]+s$`)

// test runs the tests of a package with a mutant, if there is one, within a limit of time. Tests that take longer
// fail.
func test(pkg, run string, m *mutant, limit time.Duration) (outcome, error) {
	ctx, cancel := context.Background(), func() {}
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-run=" + run}
	if m != nil {
		dir, err := os.MkdirTemp("", "mutate")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		overlay, err := m.write(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay="+overlay, "-timeout="+limit.String())
		ctx, cancel = context.WithTimeout(ctx, 2*limit) // and the time to compile
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil:
		return survived, nil
	case strings.Contains(text, "[build failed]"):
		return invalid, nil
	case ctx.Err() != nil, testsFailed.MatchString(text):
		return killed, nil
	default: // such as a full disk
		return "", fmt.Errorf("go test %s: %w: %s", pkg, err, strings.TrimSpace(text))
	}
}
