package hf

import (
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/microscale-go/microscale/safetensors"
)

// A Remote is a safetensors file that belongs to a directory and is read from
// elsewhere.
type Remote struct {
	Name   string // in the directory, in no folder of it
	URL    string // where it is, for messages
	Size   int64  // bytes
	Reader io.ReaderAt
}

// OpenRemote opens a directory as Open does, as if it had the remote files too, and
// those that are skipped.
func OpenRemote(dir string, remotes []Remote, skipped []Skipped) (*Checkpoint, error) {
	c := &Checkpoint{Path: dir, byName: make(map[string]int), remotes: make(map[string]Remote, len(remotes)), skipped: skipped}
	for _, r := range remotes {
		c.remotes[r.Name] = r
	}
	if err := c.openDirectory(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Remote reports whether the checkpoint is elsewhere, and what is here of it is a
// copy: the times of its files say nothing.
func (c *Checkpoint) Remote() bool { return c.remotes != nil }

// OpenFile returns a checkpoint of a single file that is open already. Close
// closes it.
func OpenFile(f *safetensors.File) (*Checkpoint, error) {
	c := &Checkpoint{Path: f.Name(), Single: true, byName: make(map[string]int)}
	if err := c.add(Shard{Name: f.Name(), File: f}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// open opens a file of the directory, or the remote file of that name.
func (c *Checkpoint) open(name, path string) (*safetensors.File, error) {
	if r, ok := c.remotes[name]; ok {
		return safetensors.NewFile(r.Reader, r.Size, r.URL)
	}
	return safetensors.Open(path)
}

// withRemotes returns the entries of the directory and those of the remote files.
func (c *Checkpoint) withRemotes(entries []fs.DirEntry) []fs.DirEntry {
	for _, r := range c.remotes {
		entries = append(entries, remoteEntry{r})
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// A remoteEntry is a remote file as an entry of the directory: an fs.DirEntry and
// its fs.FileInfo.
type remoteEntry struct{ r Remote }

// Name returns the name in the directory.
func (e remoteEntry) Name() string { return e.r.Name }

// IsDir returns false.
func (e remoteEntry) IsDir() bool { return false }

// Type returns that of a file.
func (e remoteEntry) Type() fs.FileMode { return 0 }

// Info returns the entry itself.
func (e remoteEntry) Info() (fs.FileInfo, error) { return e, nil }

// Size returns the bytes.
func (e remoteEntry) Size() int64 { return e.r.Size }

// Mode returns that of a file that is only read.
func (e remoteEntry) Mode() fs.FileMode { return 0o444 }

// ModTime returns none.
func (e remoteEntry) ModTime() time.Time { return time.Time{} }

// Sys returns nothing.
func (e remoteEntry) Sys() any { return nil }
