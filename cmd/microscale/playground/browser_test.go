//go:build !js

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/playground"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// maxPage bounds the page, in bytes, so that it loads on a phone.
const maxPage = 6_000_000

// An answered is one answer that the page showed, with what was asked.
type answered struct {
	Format, Profile, Rule, Values, Amax, Line, Text, Error string
	Pictures, Elements, Codes, Grid                        int
	Clipped                                                []string // texts that go beyond their picture
}

// seen is what the probe saw of the page.
type seen struct {
	Answers                             []answered
	Controls, Unnamed, Requests, Errors []string
	Stopped                             []string // results after a stop
	Replaced, None                      string   // what is shown and offered when other files, or none, are chosen during an answer
	Unstarted                           string   // the error of what is no program
	Background                          string
	Wide, Width, Loaded                 int
	Checkpoints                         [][]result
}

// A result is what the page showed of a checkpoint: a text or an error, and in the picture of a block values, codes and bars.
type result struct {
	Command, Line, Text, Error string
	Elements, Codes, Bars      int
}

// TestBrowser builds the page and uses it in headless Chromium, from a file. The page shows what the commands print.
func TestBrowser(t *testing.T) {
	browser := slow.Browser(t)
	page, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the page has %.2f MB", float64(len(page))/1e6)
	if len(page) > maxPage {
		t.Errorf("got a page of %d bytes, want at most %d", len(page), maxPage)
	}
	plan := [][2]string{
		{"format", "mxfp4"}, {"rule", "floor"}, {"rule", ""}, {"profile", "all"}, {"profile", "ocp"}, {"values", "1 nan inf"},
		{"values", "0.1, -0.7\n[2.5]"}, {"values", "0.1 abc"}, {"values", ""}, {"values", strings.Repeat("1 ", 1025)},
		{"values", strings.Repeat("1 ", 600)}, {"format", "nvfp4"}, {"amax", "12.5"}, {"amax", "-1"}, {"amax", ""},
		{"values", "3e38 -1.2345e-8"}, {"format", "mxint8"}, {"values", "-1.2345e-38 1.999e-38"}, {"values", "0 0"}, {"values", "nan"},
	}
	read := cases(t)
	backgrounds := map[string]bool{}
	for _, tc := range []struct {
		name  string
		width int
		flags []string
		plan  [][2]string
		read  []readCase
	}{
		{"desktop", 1280, nil, plan, read},
		{"phone", 360, []string{"--blink-settings=preferredColorScheme=0"}, nil, read[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := visit(t, browser, page, tc.width, tc.plan, tc.read, tc.flags)
			for _, problem := range slices.Concat(got.Errors, got.Requests, got.Unnamed) {
				t.Errorf("error, request or control without a name: %s", problem)
			}
			if got.Wide > 0 || got.Width != tc.width {
				t.Errorf("got a page of %d pixels, and %d more, want %d", got.Width, got.Wide, tc.width)
			}
			for _, control := range got.Controls {
				if !strings.HasSuffix(control, ":0") {
					t.Errorf("%s: not in the order of the keyboard", control)
				}
			}
			scaled := 0
			for _, f := range quant.Formats() {
				if f.Scaled() {
					scaled++
				}
			}
			if len(got.Answers) != scaled+len(tc.plan) {
				t.Errorf("got %d answers, want %d formats and %d", len(got.Answers), scaled, len(tc.plan))
			}
			for _, a := range got.Answers {
				a.check(t)
			}
			if len(got.Checkpoints) != len(tc.read) {
				t.Errorf("got %d checkpoints, want %d", len(got.Checkpoints), len(tc.read))
			}
			for i, shown := range got.Checkpoints {
				for j, want := range tc.read[i].answers(t) {
					if j >= len(shown) || shown[j].Text != want.Text || shown[j].Line != want.Line || shown[j].Error != want.Error {
						t.Errorf("checkpoint %d: got %+v, want %+v", i, shown, want)
						break
					}
					shown[j].check(t, want.Explanation)
					if strings.Contains(want.Error, "\n") {
						t.Errorf("checkpoint %d: got an error of several lines: %s", i, want.Error)
					}
				}
			}
			if !slices.Equal(got.Stopped, []string{"stopped"}) {
				t.Errorf("after a stop, got %q", got.Stopped)
			}
			if got.Replaced != "Weights…, identify false, stop true" || got.None != ", identify false, stop false" {
				t.Errorf("after other files, got %q; after none, %q", got.Replaced, got.None)
			}
			if !strings.HasPrefix(got.Unstarted, "the program ended: TypeError") {
				t.Errorf("got the error %q of what is no program", got.Unstarted)
			}
			backgrounds[got.Background] = true
			t.Logf("loaded after %d ms", got.Loaded)
		})
	}
	if len(backgrounds) != 2 {
		t.Errorf("got backgrounds %v, want a light one and a dark one", backgrounds)
	}
}

// check compares an answer with that of this machine, and its pictures with its blocks.
func (a *answered) check(t *testing.T) {
	t.Helper()
	request, err := json.Marshal(playground.Request{Command: "explain", Values: a.Values, Format: a.Format, Profile: a.Profile,
		ScaleRule: a.Rule, Amax: a.Amax})
	if err != nil {
		t.Fatal(err)
	}
	var want playground.Answer
	if err := json.Unmarshal(playground.Ask(t.Context(), request), &want); err != nil {
		t.Fatal(err)
	}
	asked := fmt.Sprintf("%s %s %s %.40q", a.Format, a.Profile, a.Rule, a.Values)
	if a.Error != want.Error || a.Error == "" && (a.Text != want.Text || a.Line != want.Line) {
		t.Errorf("%s: got %q %q\n%s\nwant %q %q\n%s", asked, a.Error, a.Line, a.Text, want.Error, want.Line, want.Text)
	}
	if strings.Contains(a.Error, "\n") {
		t.Errorf("%s: got an error of several lines: %s", asked, a.Error)
	}
	if a.Error != "" {
		return
	}
	var explained struct {
		Profiles []struct {
			Defined bool
			Blocks  []struct{ Elements []struct{} }
		}
	}
	if err := json.Unmarshal(want.Explanation, &explained); err != nil {
		t.Fatal(err)
	}
	blocks, elements := 0, 0
	for _, p := range explained.Profiles {
		if p.Defined {
			for _, b := range p.Blocks[:min(16, len(p.Blocks))] {
				blocks, elements = blocks+1, elements+len(b.Elements)
			}
			break
		}
	}
	if len(a.Clipped) > 0 {
		t.Errorf("%s: the picture cuts %q", asked, a.Clipped)
	}
	if a.Pictures != blocks || a.Elements != elements || a.Grid < blocks || a.Codes == 0 && elements/blocks <= 16 {
		t.Errorf("%s: got %d pictures of %d values with %d codes and %d lines, want %d of %d", asked, a.Pictures, a.Elements, a.Codes,
			a.Grid, blocks, elements)
	}
}

// check compares the picture with the block: values, codes, and bars of decoded values, originals and errors.
func (r *result) check(t *testing.T, explanation []byte) {
	t.Helper()
	var block struct {
		Values  []float64
		Writers []struct{ Decoded []float64 }
	}
	if explanation != nil {
		if err := json.Unmarshal(explanation, &block); err != nil {
			t.Fatal(err)
		}
	}
	elements, bars := 0, 0
	if block.Writers != nil {
		elements = len(block.Writers[0].Decoded)
		bars = elements + len(block.Values)
		for i, v := range block.Values {
			if v != block.Writers[0].Decoded[i] {
				bars++
			}
		}
	}
	if r.Elements != elements || r.Bars != bars || (r.Codes != elements && elements <= 16) {
		t.Errorf("%s: got a picture of %d values, %d codes and %d bars, want %d values and %d bars", r.Line, r.Elements, r.Codes, r.Bars,
			elements, bars)
	}
}

// visit opens the page in a frame of the given width, does what is planned, reads checkpoints, and returns what the probe saw.
func visit(t *testing.T, browser string, page []byte, width int, plan [][2]string, read []readCase, flags []string) (got seen) {
	t.Helper()
	reports := make(chan []byte, 1)
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // an image that keeps the browser from ending before the report
			select {
			case <-done:
			case <-r.Context().Done():
			}
			return
		}
		if body, err := io.ReadAll(r.Body); err == nil {
			reports <- body
			close(done)
		}
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "playground") // not t.TempDir: processes of the browser may outlive the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	probe, err := os.ReadFile(filepath.Join("testdata", "probe.js"))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := json.Marshal(append([][2]string{}, plan...)) // [], not null
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	limit := 10 * time.Minute // of the visit; one answer may take half of it
	if deadline, ok := t.Deadline(); ok {
		limit = time.Until(deadline) / 2
	}
	script := fmt.Sprintf("<script>const server = %q, plan = %s, checkpoints = %s, patience = %d;\n%s</script></body>", server.URL+"/",
		steps, checkpoints, limit.Milliseconds()/2, probe)
	for _, r := range [][2]string{{"img-src data:", "img-src data:; connect-src " + server.URL}, {"</body>\n</html>", script}} {
		if strings.Count(text, r[0]) != 1 {
			t.Fatalf("got %q %d times in the page, want once", r[0], strings.Count(text, r[0]))
		}
		text = strings.Replace(text, r[0], r[1], 1)
	}
	frame := `<body style="margin: 0"><iframe src="page.html" style="border: 0; height: 800px; width: ` + strconv.Itoa(width) +
		`px"></iframe><img src="` + server.URL + `/" alt="">`
	for name, data := range map[string]string{"page.html": text, "frame.html": frame} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--enable-logging=stderr", "--log-level=0", "--window-size=1280,900", "--dump-dom"}
	args = append(append(args, flags...), "file://"+filepath.ToSlash(filepath.Join(dir, "frame.html")))
	cmd := exec.CommandContext(t.Context(), browser, args...)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case report := <-reports:
		if err := json.Unmarshal(report, &got); err != nil {
			t.Fatal(err)
		}
	case <-time.After(limit):
		t.Errorf("the page sent no report in %v", limit.Round(time.Second))
	}
	_ = cmd.Process.Kill() // it has nothing more to say
	_ = cmd.Wait()
	if console := regexp.MustCompile(`(?m)^.*CONSOLE.*$`).FindAllString(log.String(), -1); console != nil {
		t.Errorf("got console messages:\n%s", strings.Join(console, "\n"))
	}
	return got
}
