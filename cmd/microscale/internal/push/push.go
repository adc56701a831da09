// Package push uploads checkpoints to the Hugging Face Hub, as huggingface_hub does: weights as objects of Git LFS, in
// parts where the hub asks for them, and then one commit with all files.
//
//	POST /api/repos/create                            unless the repository exists
//	POST /api/models/OWNER/NAME/preupload/REVISION    which files are objects of LFS
//	POST /OWNER/NAME.git/info/lfs/objects/batch       where to send those that the hub lacks
//	PUT  to the addresses of the answer, POST to complete parts and to verify
//	GET  /api/models/OWNER/NAME/revision/REVISION     the files that are there
//	POST /api/models/OWNER/NAME/commit/REVISION       small files, and the names of objects
//
// Readers see the files at once, by the commit. A push that ended early is repeated: objects that the hub has are not
// sent again.
package push

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// A File is a file to push.
type File struct {
	Name string `json:"name"` // in the repository, with slashes
	Size int64  `json:"bytes"`
	LFS  bool   `json:"lfs"`  // set by Push: an object of Git LFS
	Sent bool   `json:"sent"` // set by Push: the hub lacked the object
	sum  string // SHA-256 of an object of LFS
	path string // "" if content is it
	text []byte
}

// Made returns a file with the given content.
func Made(name string, content []byte) *File {
	return &File{Name: name, Size: int64(len(content)), text: content}
}

// Files returns the files of a checkpoint: of a directory those in it and its folders, except hidden ones. Links to
// files are followed, those to folders are not.
func Files(path string) (files []*File, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []*File{{Name: filepath.Base(path), Size: info.Size(), path: path}}, nil
	}
	if path, err = filepath.EvalSymlinks(path); err != nil { // WalkDir does not follow a link
		return nil, err
	}
	err = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == path {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(at)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		name, err := filepath.Rel(path, at)
		files = append(files, &File{Name: filepath.ToSlash(name), Size: info.Size(), path: at})
		return err
	})
	if err == nil && !slices.ContainsFunc(files, func(f *File) bool { return filepath.Ext(f.Name) == safetensors.Suffix }) {
		err = fmt.Errorf("%s: it has no %s files", path, safetensors.Suffix)
	}
	return files, err
}

// Strays returns an error that names weights among the files whose names are those of shards, and that are not of the checkpoint:
// readers of the repository could take them for its weights. Files of other names, such as consolidated.safetensors, may be there.
func Strays(files []*File, shards []hf.Shard) error {
	var names []string
	for _, f := range files {
		if shardName.MatchString(f.Name) && !slices.ContainsFunc(shards, func(s hf.Shard) bool { return s.Name == f.Name }) {
			names = append(names, f.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%s: weights that are not of the checkpoint: remove them from the directory, or rename them",
			strings.Join(names, ", "))
	}
	return nil
}

// open opens the content.
func (f *File) open() (content io.ReaderAt, closing func() error, err error) {
	if f.path == "" {
		return strings.NewReader(string(f.text)), func() error { return nil }, nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, err
	}
	return file, file.Close, nil
}

// bytes returns n bytes of the content from its start on.
func (f *File) bytes(n int64) ([]byte, error) {
	content, closing, err := f.open()
	if err != nil {
		return nil, err
	}
	data := make([]byte, n)
	_, err = io.ReadFull(io.NewSectionReader(content, 0, n), data)
	return data, errors.Join(err, closing())
}

// digest sets the SHA-256.
func (f *File) digest(ctx context.Context) error {
	content, closing, err := f.open()
	if err != nil {
		return err
	}
	h := sha256.New()
	err = ranges.Hash(ctx, h, content, f.Size)
	f.sum = hex.EncodeToString(h.Sum(nil))
	return errors.Join(err, closing())
}

// Options of a push.
type Options struct {
	Private  bool                    // of a repository that is created
	Message  string                  // of the commit
	Progress func(done, total int64) // bytes of objects

	retry ranges.Retry
}

// A Result is what a push did.
type Result struct {
	Created bool   `json:"created"` // the repository did not exist
	Private bool   `json:"private"`
	Commit  string `json:"commit"`
	// Removed are the weights and the index of an earlier checkpoint that the files do not replace.
	Removed []string `json:"removed,omitempty"`
}

// A pusher pushes to one repository.
type pusher struct {
	client     *hub.Client
	repository hub.Repository
	Options
}

// Push uploads files to a repository, which it creates if necessary. Of the files of the repository with other names, weights and
// the index of an earlier checkpoint are removed if the files have such weights, and others stay.
func Push(ctx context.Context, client *hub.Client, r hub.Repository, files []*File, o Options) (*Result, error) {
	p := &pusher{client, r, o}
	if client.Token == "" {
		return nil, fmt.Errorf("%s: %w: there is no token: set HF_TOKEN to one that may write", r, fs.ErrPermission)
	}
	result, err := p.create(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.preupload(ctx, files); err != nil {
		return nil, err
	}
	var objects []*File
	for _, f := range files {
		if f.LFS {
			objects = append(objects, f)
		}
	}
	if err := p.upload(ctx, objects); err != nil {
		return nil, err
	}
	return result, p.commit(ctx, files, result)
}

// create creates the repository unless it exists. One that must be private is checked before anything is sent.
func (p *pusher) create(ctx context.Context) (*Result, error) {
	var info struct{ Private bool }
	err := p.api(ctx, "GET", p.models(), nil, &info)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		document := map[string]any{"name": p.repository.Name, "organization": p.repository.Owner, "type": "model"}
		if p.Private {
			document["private"], document["visibility"] = true, "private" // of older and newer hubs
		}
		if err := p.api(ctx, "POST", "/api/repos/create", document, nil); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		err = p.api(ctx, "GET", p.models(), nil, &info)
	}
	switch {
	case err != nil:
		return nil, err
	case p.Private && !info.Private:
		return nil, fmt.Errorf("%s: the repository is public: omit --private, or change that on its page; no file was sent", p.repository)
	}
	return &Result{Created: missing, Private: info.Private}, nil
}

// models returns the path of the API of the repository.
func (p *pusher) models() string {
	return "/api/models/" + p.repository.Owner + "/" + p.repository.Name
}

// filesPerRequest is the number of files that a request asks about.
const filesPerRequest = 256

// preupload asks which files are objects of LFS.
func (p *pusher) preupload(ctx context.Context, files []*File) error {
	const sample = 512
	type entry struct {
		Path   string `json:"path"`
		Size   int64  `json:"size"`
		Sample string `json:"sample"` // base64
	}
	for batch := range slices.Chunk(files, filesPerRequest) {
		var request struct {
			Files []entry `json:"files"`
		}
		for _, f := range batch {
			start, err := f.bytes(min(f.Size, sample))
			if err != nil {
				return err
			}
			request.Files = append(request.Files, entry{f.Name, f.Size, base64.StdEncoding.EncodeToString(start)})
		}
		var answer struct {
			Files []struct{ Path, UploadMode string }
		}
		if err := p.api(ctx, "POST", p.models()+"/preupload/"+url.PathEscape(p.repository.Revision), request, &answer); err != nil {
			return err
		}
		modes := map[string]string{}
		for _, f := range answer.Files {
			modes[f.Path] = f.UploadMode
		}
		for _, f := range batch {
			mode := modes[f.Name]
			if f.LFS = mode == "lfs" && f.Size > 0; mode != "lfs" && mode != "regular" { // there are no empty objects
				return fmt.Errorf("%s: the hub does not say how to send %s: check HF_ENDPOINT", p.repository, f.Name)
			}
		}
	}
	return nil
}

// commit makes the files visible. The commit names its parent, so that the hub takes it once: if the answer is lost, the next
// attempt is rejected, and the branch has the files. After any other failure, too, the branch tells.
func (p *pusher) commit(ctx context.Context, files []*File, result *Result) error {
	before, err := p.head(ctx)
	if err != nil {
		return err
	}
	result.Removed = before.stale(files)
	body, err := p.changes(files, before.SHA, result.Removed)
	if err != nil {
		return err
	}
	var answer struct{ CommitOid string }
	err = p.send(ctx, request{method: "POST", address: p.client.Endpoint + p.models() + "/commit/" + url.PathEscape(p.repository.Revision),
		kind: "application/x-ndjson", body: strings.NewReader(body), size: int64(len(body))}, &answer)
	result.Commit = answer.CommitOid
	if err == nil || ctx.Err() != nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	after, failed := p.head(ctx)
	same := false
	if failed == nil && after.SHA != before.SHA {
		same, failed = after.has(files, result.Removed)
	}
	if failed != nil {
		return fmt.Errorf("%w; perhaps there is a commit: the branch could not be read again: %w", err, failed)
	}
	if result.Commit = after.SHA; same {
		return nil
	}
	return err
}

// changes returns the lines of a commit.
func (p *pusher) changes(files []*File, parent string, removed []string) (string, error) {
	type line struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
	var body strings.Builder
	lines := json.NewEncoder(&body)
	header := map[string]string{"summary": p.Message, "description": ""}
	if parent != "" {
		header["parentCommit"] = parent
	}
	if err := lines.Encode(line{"header", header}); err != nil {
		return "", err
	}
	for _, f := range files {
		l := line{"lfsFile", map[string]any{"path": f.Name, "algo": "sha256", "oid": f.sum, "size": f.Size}}
		if !f.LFS {
			content, err := f.bytes(f.Size)
			if err != nil {
				return "", err
			}
			l = line{"file", map[string]string{"path": f.Name, "encoding": "base64", "content": base64.StdEncoding.EncodeToString(content)}}
		}
		if err := lines.Encode(l); err != nil {
			return "", err
		}
	}
	for _, name := range removed {
		if err := lines.Encode(line{"deletedFile", map[string]string{"path": name}}); err != nil {
			return "", err
		}
	}
	return body.String(), nil
}
