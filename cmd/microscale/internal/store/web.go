package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// A web is a folder, or a file, of a web server. Its requests keep the query of the URL, which may be a signature.
type web struct {
	opener
	url    *url.URL
	client *http.Client
}

func newWeb(_ context.Context, o opener, u *url.URL) (place, error) {
	at := *u
	at.Path, at.RawPath = strings.TrimRight(at.Path, "/"), strings.TrimRight(at.RawPath, "/")
	at.Fragment = ""
	return &web{o, &at, &http.Client{Transport: ranges.Transport{}, CheckRedirect: checkRedirect}}, nil
}

// inside implements place.
func (w *web) inside(name string) place {
	other := *w
	other.url = w.url.JoinPath(name)
	return &other
}

// checkRedirect is the CheckRedirect of http.Client.
func checkRedirect(next *http.Request, before []*http.Request) error {
	if err := ranges.Redirect(before[0].URL, next.URL, len(before), "check the URL"); err != nil {
		return err
	}
	next.Header.Del("Referer") // the previous URL with its query
	return nil
}

// String implements place.
func (w *web) String() string {
	at := *w.url
	at.RawQuery = ""
	return at.String()
}

// auxiliary are the names of files that a server is asked for: it has no listing.
var auxiliary = []string{
	hf.ConfigName, "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "hf_quant_config.json",
	"LICENSE", "merges.txt", "params.json", "preprocessor_config.json", "processor_config.json", "README.md", "recipe.yaml",
	"special_tokens_map.json", "tekken.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// list implements place. It asks for the index and the files that it names, or for model.safetensors, and for
// the usual names of other files.
func (w *web) list(ctx context.Context) ([]object, error) {
	shards := []string{safetensors.ShardName(1, 1)}
	index, err := w.statName(ctx, safetensors.IndexName)
	hasIndex := err == nil
	if hasIndex {
		shards, err = w.indexed(ctx, index)
	}
	if err != nil && !missing(err) {
		return nil, err
	}
	names := slices.Concat(shards, auxiliary)
	objects, failures := make([]object, len(names)), make([]error, len(names))
	parallel.Each(len(names), atOnce, func(i int) { objects[i], failures[i] = w.statName(ctx, names[i]) })
	var found []object
	for i, err := range failures {
		switch {
		case err == nil:
			found = append(found, objects[i])
		case i == 0 && !hasIndex && missing(err):
			return nil, &ranges.SubjectError{Subject: w.String(), Err: fmt.Errorf("%w; and it has no %s: name the folder of a checkpoint, or a "+
				"%s or %s file", err, safetensors.IndexName, safetensors.Suffix, gguf.Suffix)}
		case i < len(shards) || !missing(err):
			return nil, err
		}
	}
	if hasIndex {
		found = append(found, index)
	}
	return found, nil
}

// missing reports whether a server does not have a file. Some deny access to what they do not have.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// indexed returns the files that an index names. Whether the index is valid, and all of its files exist, is
// checked when the checkpoint is opened.
func (w *web) indexed(ctx context.Context, index object) ([]string, error) {
	data, err := w.content(ctx, w, index)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Files map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(data, &parsed) != nil {
		return nil, nil
	}
	names := slices.Sorted(maps.Values(parsed.Files))
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return !ranges.ValidName(name) || strings.Contains(name, "/")
	}), nil
}

// stat implements place.
func (w *web) stat(ctx context.Context) (object, error) { return w.statName(ctx, "") }

// statName asks for the first byte of a file: unlike HEAD, the response tells whether the server supports ranges. Some
// support them only for large files.
func (w *web) statName(ctx context.Context, name string) (o object, err error) {
	o.name = name
	err = w.try(ctx, w.name(name), func() error {
		a, err := w.read(ctx, o, 0, 1)
		if err != nil {
			return err
		}
		defer func() { _ = a.Close() }() // its errors no longer matter
		o.version = a.version
		_, o.size = ranges.ContentRange(a.header)
		if length := a.header.Get("Content-Length"); !a.partial && name != "" && !isWeights(name) && !isPage(a.header) {
			if o.size, err = strconv.ParseInt(length, 10, 64); err != nil || o.size > largestOther {
				o.size = -1
			}
		}
		if o.size < 0 {
			return ranges.Permanent{Err: errNoRanges}
		}
		if o.version == "" && (name == "" || isWeights(name)) {
			ranges.Notify(ctx, w.url.Host+" sends neither ETag nor Last-Modified: if a file changes while it is read, only another size is noticed")
		}
		return nil
	})
	return o, err
}

// isPage reports whether a response is a page, as some servers send in place of what they do not have.
func isPage(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "text/html") }

// name returns the name of a file in errors.
func (w *web) name(name string) string {
	if name == "" {
		return w.String()
	}
	return w.String() + "/" + name
}

// read implements place.
func (w *web) read(ctx context.Context, o object, off, n int64) (*answer, error) {
	at := *w.url
	if o.name != "" {
		at = *at.JoinPath(strings.Split(o.name, "/")...)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, ranges.Permanent{Err: err}
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "microscale")
	if strings.HasPrefix(o.version, `"`) {
		request.Header.Set("If-Match", o.version)
	}
	response, err := w.client.Do(request)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the URL may contain a signature
			if _, plain := errors.AsType[tls.RecordHeaderError](err); plain || errors.Is(err, http.ErrSchemeMismatch) {
				err = errPlain
			}
			to, parseErr := at.Parse(e.URL)                                                      // that of a redirect may be relative
			if _, refused := errors.AsType[ranges.Permanent](err); !refused && parseErr == nil { // ranges.Redirect names the host
				err = redirected(&at, to, err)
			}
		}
		return nil, err
	}
	a := &answer{ReadCloser: response.Body, header: response.Header, partial: response.StatusCode == http.StatusPartialContent,
		version: response.Header.Get("ETag")}
	if a.version == "" {
		a.version = response.Header.Get("Last-Modified")
	}
	if response.StatusCode == http.StatusRequestedRangeNotSatisfiable && response.Header.Get("Content-Range") == "bytes */0" {
		a.partial = true // of an empty file
		return a, nil
	}
	if err := webStatus(response); err != nil {
		_ = a.Close() // its errors no longer matter
		return nil, redirected(&at, response.Request.URL, withQuery(&at, err))
	}
	return a, nil
}

// errPlain is the error of an https URL to the port of a plain server.
var errPlain = ranges.Permanent{
	Err: errors.New("the server answered without TLS: use http:// if you trust the network, or name the HTTPS port"),
}

// withQuery says that a request had a query, of which errors show nothing: all of it may be a signature.
func withQuery(at *url.URL, err error) error {
	if _, final := errors.AsType[ranges.Permanent](err); !final || at.RawQuery == "" {
		return err
	}
	return ranges.Permanent{Err: fmt.Errorf("%w (the request had the query of the URL, which is not shown)", err)}
}

// redirected adds the host to an error of a request that was redirected to another one.
func redirected(from, to *url.URL, err error) error {
	if from.Host == to.Host {
		return err
	}
	text := fmt.Errorf("redirected to %s: %w", to.Host, err)
	if _, ok := errors.AsType[ranges.Permanent](err); ok {
		return ranges.Permanent{Err: text}
	}
	return text
}

// webStatus returns the error for the status of a response, or nil.
func webStatus(r *http.Response) error {
	if busy, ok := ranges.BusyResponse(r); ok {
		return busy
	}
	switch r.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
		return nil
	case http.StatusPreconditionFailed:
		return ranges.Permanent{Err: errChanged}
	case http.StatusNotFound, http.StatusGone:
		return ranges.Permanent{Err: fmt.Errorf("%w: the server responded %s: check the URL", fs.ErrNotExist, r.Status)}
	case http.StatusUnauthorized, http.StatusForbidden:
		return ranges.Permanent{Err: fmt.Errorf("%w: the server responded %s: use a URL that needs no login", fs.ErrPermission, r.Status)}
	}
	return ranges.Permanent{Err: fmt.Errorf("the server responded %s", r.Status)}
}
