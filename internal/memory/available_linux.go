package memory

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Available returns the number of bytes that this process can still allocate: memory that the
// system has free or can free, including swap, within the limits of its control groups.
func Available() int64 { return available(os.DirFS("/")) }

func available(root fs.FS) int64 {
	lowest := int64(unknown)
	info := fields(root, "proc/meminfo")
	if free, ok := info["MemAvailable:"]; ok {
		lowest = (free + info["SwapFree:"]) << 10 // KiB
	}
	for _, group := range groups(root) {
		limit, err := number(root, path.Join(group, "memory.max"))
		used, usedErr := number(root, path.Join(group, "memory.current"))
		if err == nil && usedErr == nil { // otherwise the group has no limit
			cache := fields(root, path.Join(group, "memory.stat"))["file"] // page cache, which the system can free
			lowest = min(lowest, max(limit-used+cache, 0))
		}
	}
	return lowest
}

// groups returns the directories of the process's version 2 control group and its ancestors.
func groups(root fs.FS) []string {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	var list []string
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := path.Clean("/" + name); ok; dir = path.Dir(dir) {
			list = append(list, path.Join("sys/fs/cgroup", dir))
			if dir == "/" {
				break
			}
		}
	}
	return list
}

// number reads a file that contains one number.
func number(root fs.FS, name string) (int64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

// fields reads a file of names and numbers, one pair per line.
func fields(root fs.FS, name string) map[string]int64 {
	text, _ := fs.ReadFile(root, name) // on error, return no pairs
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 {
			if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				values[f[0]] = v
			}
		}
	}
	return values
}
