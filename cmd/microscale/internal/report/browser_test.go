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

	"github.com/microscale-go/microscale/internal/slow"
)

// probe is a script that reports how the browser rendered the page. It runs without a frame, which
// a browser without a screen may never draw.
const probe = `<script>
addEventListener("load", () => {
  const seen = (e) => { const r = e.getBoundingClientRect(); return [Math.round(r.width), Math.round(r.height)]; };
  const color = (e) => getComputedStyle(e).fill + " " + getComputedStyle(e).stroke;
  document.body.dataset.probe = JSON.stringify({
    charts: [...document.querySelectorAll("svg")].map(seen),
    paths: [...document.querySelectorAll("svg")].map((s) => s.querySelectorAll("path").length),
    unnamed: [...document.querySelectorAll("svg:not([aria-label])")].length,
    smallest: Math.min(...[...document.querySelectorAll("svg text")].map((t) => t.getBoundingClientRect().height)),
    requests: performance.getEntriesByType("resource").map((r) => r.name),
    overlaps: [...document.querySelectorAll("svg")].flatMap((s) => {
      const boxes = [...s.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
      return boxes.flatMap(([a, r], i) => boxes.slice(i + 1).filter(([, q]) =>
        Math.min(r.right, q.right) - Math.max(r.left, q.left) > 1 &&
        Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 0.3 * r.height).map(([b]) =>
          s.getAttribute("aria-label") + ": " + a + " | " + b));
    }),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    colors: [...new Set([...document.querySelectorAll("#losses svg path, #speed svg path")].map(color))],
  });
});
</script></body>`

type probed struct {
	Charts   [][2]int
	Paths    []int
	Unnamed  int
	Smallest float64
	Overlaps []string
	Requests []string
	Wide     int
	Colors   []string
}

// TestBrowser opens the page in headless Chromium at desktop and phone sizes. It checks that
// there are no errors or requests, and that every chart has a size, legible text and its
// colors.
func TestBrowser(t *testing.T) {
	browser := slow.Browser(t)
	comparison, speed := made(40), madeSpeed()
	for _, tc := range []struct {
		name          string
		page          interface{ HTML() ([]byte, error) }
		series        int
		width, height int
	}{ // the narrowest window of headless Chromium is 500 pixels
		{"desktop", comparison, len(comparison.Recipes), 1280, 900}, {"phone", comparison, len(comparison.Recipes), 500, 800},
		{"speed/desktop", speed, len(speed.Series), 1280, 900}, {"speed/phone", speed, len(speed.Series), 500, 800},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := withProbe(t, tc.page)
			got := open(t, browser, page, tc.width, tc.height)
			if want := charts(page); len(got.Charts) != want || want == 0 {
				t.Errorf("got %d charts, want %d", len(got.Charts), want)
			}
			for i, size := range got.Charts {
				if size[0] < 200 || size[1] < 80 || got.Paths[i] == 0 {
					t.Errorf("chart %d: got %d×%d pixels with %d paths", i, size[0], size[1], got.Paths[i])
				}
			}
			if got.Unnamed > 0 {
				t.Errorf("got %d charts without a name", got.Unnamed)
			}
			if got.Smallest < 9 {
				t.Errorf("got text %.1f pixels high", got.Smallest)
			}
			if len(got.Overlaps) > 0 {
				t.Errorf("got texts over each other: %q", got.Overlaps)
			}
			if len(got.Requests) > 0 {
				t.Errorf("got requests %q, want none", got.Requests)
			}
			if got.Wide > 0 {
				t.Errorf("got a page %d pixels wider than the window", got.Wide)
			}
			// Each series, the grid and the axes.
			if len(got.Colors) < tc.series+2 {
				t.Errorf("got colors %q, too few for %d series", got.Colors, tc.series)
			}
		})
	}
}

// withProbe returns the page with the probe, and with a content security policy that permits
// it.
func withProbe(t *testing.T, c interface{ HTML() ([]byte, error) }) string {
	t.Helper()
	b, err := c.HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, r := range [][2]string{{"default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'"}, {"</body>", probe}} {
		if strings.Count(page, r[0]) != 1 {
			t.Fatalf("got %q %d times in the page, want once", r[0], strings.Count(page, r[0]))
		}
		page = strings.Replace(page, r[0], r[1], 1)
	}
	return page
}

// open returns the probe's report for a window of the given size. It retries, because Chromium
// on a busy machine sometimes prints the page before it has run the script.
func open(t *testing.T, browser, page string, width, height int) probed {
	t.Helper()
	for range 3 {
		dom, stderr := dump(t, browser, page, width, height)
		if console := regexp.MustCompile(`(?m)^.*CONSOLE.*$`).FindAllString(stderr, -1); console != nil {
			t.Errorf("got console messages:\n%s", strings.Join(console, "\n"))
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
	t.Fatal("the page ran no script in three attempts")
	return probed{}
}

// dump returns the page's DOM in a window of the given size, and the browser's log.
func dump(t *testing.T, browser, page string, width, height int) (dom []byte, log string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "report") // not t.TempDir: processes of the browser may outlive the test
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
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=5000",
		fmt.Sprintf("--window-size=%d,%d", width, height), "--dump-dom", "file://"+filepath.ToSlash(file))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if dom, err = cmd.Output(); err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, stderr.String())
	}
	return dom, stderr.String()
}
