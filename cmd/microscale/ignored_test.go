package main

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestIgnored: a flag without effect is an error that names it, before anything is read or printed.
func TestIgnored(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for line, want := range map[string]string{
		"mma --c 1":                                      "--c applies to --explain: add that, or omit --c",
		"mma --model hopper-wgmma --scales-a 1":          "--scales-a applies to --explain",
		"mma --model hopper-wgmma --scales-b 1":          "--scales-b applies to --explain",
		"mma --model hopper-wgmma --k 0":                 "nothing to compute: add --raw or --explain",
		"mma --b e4m3":                                   "nothing to compute: add --raw or --explain",
		"mma --raw --model hopper-wgmma --a e4m3 1:1":    "--raw reads standard input: omit \"1:1\"",
		"mma --raw --json --model hopper-wgmma --a e4m3": "--raw and --json exclude each other",

		"layout --rows 2":                          "--rows applies to --find or --check or --from or --to: add that, or omit --rows",
		"layout --cols 2":                          "--cols applies to",
		"layout --format mxfp8":                    "--format applies to",
		"layout --draw swizzle --rows 2":           "--draw and --rows exclude each other",
		"layout --draw swizzle --format mxfp8":     "--draw and --format exclude each other",
		"layout --draw swizzle --find":             "--draw and --find exclude each other",
		"layout --draw swizzle --from te":          "--draw and --from exclude each other",
		"layout --draw=":                           "--draw: unknown picture",
		"layout --find --to te":                    "--find and --to exclude each other",
		"layout --check te --to mlx":               "--check and --to exclude each other",
		"layout --from te --to mlx --json":         "--json and --to exclude each other",
		"layout --from te":                         "--to is missing",
		"layout --to te":                           "--from is missing",
		"layout --find --format mxfp8 --rows 2":    "--rows and --cols are missing or below 1",
		"layout --find --rows 2 --cols 32":         "--format is missing",
		"layout --find --rows 2 --format mxfp8 te": "got \"te\", want no arguments",

		"check --m 2":                                         "--m applies to --format: add that, or omit --m",
		"check --n 0":                                         "--n applies to --format",
		"check --device h100 --forward":                       "--forward applies to --format",
		"check --device h100 --weight-format mxfp8":           "--weight-format applies to --format",
		"check --device h100 --format mxfp8 --m 1 --n 1":      "--k is missing",
		"check --format mxfp8 --m 1 --n 1 --k 1":              "--device is missing",
		"check --format mxfp8 --forward --gradient-format f8": "unknown block format",
		"check --device h100 --format mxfp8 --forward --gradient-format mxfp8 --m 1 --n 1 --k 1": "--forward and --gradient-format exclude " +
			"each other",

		"cost --tables --recipe nvfp4":                                         "--tables and --recipe exclude each other",
		"cost --tables --device b200":                                          "--tables and --device exclude each other",
		"cost --tables --tokens 2":                                             "--tables and --tokens exclude each other",
		"cost --tables --width 2":                                              "--tables and --width exclude each other",
		"cost --tables --explain":                                              "--tables and --explain exclude each other",
		"cost --params 8e9 --device b200 --ranks-per-node 4":                   "--ranks-per-node applies to --ranks",
		"cost --params 8e9 --device b200 --node-bandwidth 4":                   "--node-bandwidth applies to --ranks",
		"cost --device b200":                                                   "--params is missing",
		"cost --device b200 --params 0":                                        "got 0",
		"cost --params 8e9":                                                    "--device is missing",
		"cost --params nan --device b200":                                      "NaN",
		"study block-size --format nvfp4 --scale-rule floor":                   "--scale-rule: the formats have no e8m0 scales",
		"study block-size --format fp8-tensor --blocks 16":                     "--blocks: the formats keep their own blocks",
		"study block-size --format mxfp8-32x32 --blocks 16":                    "--blocks: the formats keep their own blocks",
		"study block-size --blocks 0":                                          "blocks: got 0, want 1 or more",
		"study block-size --rows 0":                                            "rows: got 0",
		"study block-size --blocks 16,32,16":                                   "blocks: 16 is given twice: omit one",
		"study block-size --format mxfp8,mxfp8":                                "--format: mxfp8 is named twice: omit one",
		"study block-size --rows 1 --svg=":                                     "--svg is empty",
		"cost --params 8e9 --device b200 --svg=":                               "--svg is empty",
		"layout --find=false --rows 2":                                         "--rows applies to",
		"mma --model hopper-wgmma --explain=false --c 1":                       "--c applies to --explain",
		"mma --model blackwell-mxf8f6f4 --a e4m3 --explain --scales-a 1,2 1:1": "--scales-a: got 2 scales, want 1\n",
		"mma --model blackwell-mxf4 --a e2m1 --explain --scales-b 1,2,3 1:1":   "--scales-b: got 3 scales, want 1 or 2\n",
	} {
		status, stdout, stderr := execute("", strings.Fields(line)...)
		if strings.Contains(line, "--json") { // the error is a document too
			stdout = strings.TrimSuffix(stdout, "{\n  \"error\": \""+want+": omit one\"\n}\n")
		}
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") > 2 {
			t.Errorf("%s: exit status %d, %q, %q, want a usage error with %q", line, status, stdout, stderr, want)
		}
	}
}
