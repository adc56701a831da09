package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/report"
)

// browsers are the names under which headless Chromium is installed.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"}

// probe is a script that says what the browser made of the page.
const probe = `<script>
addEventListener("load", () => requestAnimationFrame(() => {
  const seen = (e) => { const r = e.getBoundingClientRect(); return [Math.round(r.width), Math.round(r.height)]; };
  const color = (e) => getComputedStyle(e).fill + " " + getComputedStyle(e).stroke;
  document.body.dataset.probe = JSON.stringify({
    charts: [...document.querySelectorAll("svg")].map(seen),
    paths: [...document.querySelectorAll("svg")].map((s) => s.querySelectorAll("path").length),
    unnamed: [...document.querySelectorAll("svg:not([aria-label])")].length,
    smallest: Math.min(...[...document.querySelectorAll("svg text")].map((t) => t.getBoundingClientRect().height)),
    requests: performance.getEntriesByType("resource").map((r) => r.name),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    colors: [...new Set([...document.querySelectorAll("#losses svg path")].map(color))],
  });
}));
</script></body>`

type probed struct {
	Charts   [][2]int
	Paths    []int
	Unnamed  int
	Smallest float64
	Requests []string
	Wide     int
	Colors   []string
}

// TestBrowser opens the page in headless Chromium, on a desktop and on a phone: no
// errors, no requests, and every chart has a size, legible text and its colors.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short no browser is started")
	}
	browser := ""
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no Chromium: install the Debian package chromium, or Chrome")
	}
	c := made(40)
	for _, tc := range []struct {
		name          string
		width, height int
	}{{"desktop", 1280, 900}, {"phone", 500, 800}} { // headless Chromium has no narrower window
		t.Run(tc.name, func(t *testing.T) {
			page := withProbe(t, c)
			got := open(t, browser, page, tc.width, tc.height)
			if want := charts(page); len(got.Charts) != want || want == 0 {
				t.Errorf("%d charts were drawn, want %d", len(got.Charts), want)
			}
			for i, size := range got.Charts {
				if size[0] < 200 || size[1] < 80 || got.Paths[i] == 0 {
					t.Errorf("chart %d is %d×%d pixels with %d paths", i, size[0], size[1], got.Paths[i])
				}
			}
			if got.Unnamed > 0 {
				t.Errorf("%d charts have no name", got.Unnamed)
			}
			if got.Smallest < 9 {
				t.Errorf("there is text of %.1f pixels' height", got.Smallest)
			}
			if len(got.Requests) > 0 {
				t.Errorf("the page requested %q", got.Requests)
			}
			if got.Wide > 0 {
				t.Errorf("the page is %d pixels wider than the window", got.Wide)
			}
			// Each recipe and the lines of grid and axes.
			if len(got.Colors) < len(c.Recipes)+2 {
				t.Errorf("the curves have the colors %q, too few for %d recipes", got.Colors, len(c.Recipes))
			}
		})
	}
}

// withProbe returns the page with the probe, which its policy against scripts has
// to let pass.
func withProbe(t *testing.T, c *report.Comparison) string {
	t.Helper()
	b, err := c.HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, r := range [][2]string{{"default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'"}, {"</body>", probe}} {
		if strings.Count(page, r[0]) != 1 {
			t.Fatalf("the page has %q %d times, want once", r[0], strings.Count(page, r[0]))
		}
		page = strings.Replace(page, r[0], r[1], 1)
	}
	return page
}

// open returns what the probe says in a window of the given size. Chromium on a busy
// machine now and then prints a page that it has not run yet, and is asked again.
func open(t *testing.T, browser, page string, width, height int) probed {
	t.Helper()
	for range 3 {
		dom, stderr := dump(t, browser, page, width, height)
		if console := regexp.MustCompile(`(?m)^.*CONSOLE.*$`).FindAllString(stderr, -1); console != nil {
			t.Errorf("the console says:\n%s", strings.Join(console, "\n"))
		}
		found := regexp.MustCompile(`data-probe="([^"]*)"`).FindSubmatch(dom)
		if found == nil {
			t.Logf("the page ran no script\n%s", stderr)
			continue
		}
		var p probed
		if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("the page ran no script in three windows")
	return probed{}
}

// dump returns the page as the browser has it in a window of the given size, and what
// the browser logs.
func dump(t *testing.T, browser, page string, width, height int) (dom []byte, log string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "report") // which processes of the browser may still write to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=5000",
		fmt.Sprintf("--window-size=%d,%d", width, height), "--dump-dom", "file://"+filepath.ToSlash(file))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if dom, err = cmd.Output(); err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, stderr.String())
	}
	return dom, stderr.String()
}
