// Package hub opens checkpoints on the Hugging Face Hub, or on a server with its API, without
// downloading them first:
//
//	hf://owner/name             the latest revision
//	hf://owner/name@v1.0        a branch, a tag or a commit
//	hf://owner/name/x.gguf      a GGUF file of a repository, with the other parts if it is split
//
// Small files (configuration, index, tokenizer) are downloaded to the cache of huggingface_hub, in
// its layout. Weights that are not in the cache are read by HTTP range requests: the header when the
// checkpoint is opened, tensors on demand. They are not stored on the disk.
//
//	$HF_HOME/hub/models--owner--name/
//	├── refs/main                      the commit of a revision
//	├── blobs/ETAG                     content, named by its hash
//	└── snapshots/COMMIT/config.json   a link to the content
//
// Requests are repeated, from the first missing byte, if a connection ends, a server sends nothing
// for half a minute, or a server is busy. The package compares downloaded files with the hub's hashes. It
// also does so for weights of which all chunks were read, nearly in order. A chunk that is fetched
// twice must have the same bytes. The token is sent only to the hub's host.
//
// Errors wrap [fs.ErrNotExist] if the hub has no such model, revision or file, and [fs.ErrPermission]
// if it denies access. For a private model and one that does not exist, the hub's response is the same,
// and the error wraps both.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/ranges"
)

// Scheme is the prefix of the name of a repository.
const Scheme = "hf://"

// A Repository is a model on the hub.
type Repository struct {
	Owner, Name string
	Revision    string // a branch, a tag or a commit
	File        string // the path of a GGUF file, with slashes; "" names the checkpoint
}

// part matches an owner or a name that the hub allows.
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)

// fileOf matches the path of a file after the name of a model and its revision. A revision with a slash is a pull request.
var fileOf = regexp.MustCompile(`^([^/@]*/[^/@]*(?:@(?:refs/pr/\d+|[^/]+))?)/(.+)$`)

// Parse parses hf://owner/name or hf://owner/name@revision, or either with the path of a GGUF file after it. The default revision is main.
func Parse(source string) (Repository, error) {
	rest, ok := strings.CutPrefix(source, Scheme)
	file := ""
	if m := fileOf.FindStringSubmatch(rest); m != nil && gguf.Named(m[2]) && ranges.ValidName(m[2]) {
		rest, file = m[1], m[2]
	}
	name, revision, given := strings.Cut(rest, "@")
	if !given {
		revision = "main"
	}
	owner, name, _ := strings.Cut(name, "/")
	if !ok || !part.MatchString(owner) || !part.MatchString(name) || strings.Contains(owner+name, "..") || strings.Contains(owner+name, "--") {
		return Repository{}, fmt.Errorf("%q does not name a model on the hub: use %sOWNER/NAME or %sOWNER/NAME@REVISION, and append /FILE.gguf "+
			"for one of its GGUF files", source, Scheme, Scheme)
	}
	if !validRevision(revision) {
		return Repository{}, fmt.Errorf("%q does not name a revision: use a branch, a tag or a commit after the @", source)
	}
	return Repository{owner, name, revision, file}, nil
}

// validRevision reports whether a revision is a valid name of a branch or a tag
// (git-check-ref-format) of printable characters. It becomes part of URLs, file names of the cache,
// and messages.
func validRevision(revision string) bool {
	const longest = 255 // bytes, of a file name in the cache
	if len(revision) > longest || !utf8.ValidString(revision) || strings.ContainsAny(revision, " ~^:?*[\\#@%") || strings.Contains(revision,
		"..") || strings.HasSuffix(revision, ".") {
		return false
	}
	if strings.ContainsFunc(revision, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return false
	}
	for component := range strings.SplitSeq(revision, "/") {
		if component == "" || strings.HasPrefix(component, ".") || strings.HasSuffix(component, ".lock") {
			return false
		}
	}
	return true
}

// String returns the name that Parse accepts.
func (r Repository) String() string {
	name := Scheme + r.Owner + "/" + r.Name
	if r.Revision != "main" {
		name += "@" + r.Revision
	}
	if r.File != "" {
		name += "/" + r.File
	}
	return name
}

// A Client opens models of a hub. Its fields must not change while a checkpoint that it opened is in
// use. [FromEnvironment] returns a Client with the settings of huggingface_hub.
type Client struct {
	Endpoint string // such as https://huggingface.co
	Token    string // access token, or ""
	Cache    string // the folder that contains models--owner--name

	// Transport makes the requests. nil means a transport that uses the proxy of the environment,
	// gives up on servers that do not answer within a minute, and is shared by all Clients. The
	// Client follows redirects itself, so that the token goes only to the hub's host.
	Transport http.RoundTripper

	wait    func(context.Context, time.Duration) error // as in ranges.Retry
	random  func() float64                             // as in ranges.Retry
	silence time.Duration                              // as in ranges.Transport
}

// maxToken is the largest token file in bytes. A token has about 40.
const maxToken = 4 << 10

const defaultEndpoint = "https://huggingface.co"

// FromEnvironment returns a Client with the settings of huggingface_hub: HF_ENDPOINT, HF_TOKEN or
// else the token file in HF_HOME, HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME. get returns the value of a
// variable, like [os.Getenv]. FromEnvironment returns an error for an invalid endpoint, an unreadable
// token file, or without a home directory.
func FromEnvironment(get func(string) string) (*Client, error) {
	home := get("HF_HOME")
	if home == "" {
		cache := get("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("no home directory for the hub's cache (%w): set HF_HOME", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	from := "HF_TOKEN"
	c := &Client{Endpoint: strings.TrimRight(get("HF_ENDPOINT"), "/"), Token: strings.TrimSpace(get("HF_TOKEN")), Cache: get("HF_HUB_CACHE")}
	if c.Endpoint == "" {
		c.Endpoint = defaultEndpoint
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT: got %q, want a URL such as %s", c.Endpoint, defaultEndpoint)
	}
	if c.Token == "" {
		from = filepath.Join(home, "token")
		text, err := limits.ReadFile(from, maxToken)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the hub's token: %w: correct or remove the file, or set HF_TOKEN", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(c.Token, unicode.IsControl) {
		return nil, fmt.Errorf("%s: the token contains a line break or another control character: copy it again", from)
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(home, "hub")
	}
	return c, nil
}
