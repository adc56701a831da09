package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/microscale-go/microscale/internal/ranges"
)

// An s3 is a folder, or an object, of a bucket of Amazon S3 or of a store with its API.
type s3 struct {
	opener
	core      *minio.Core
	url       string // without a slash at its end
	bucket    string
	key       string // of the folder or object; "" for the whole bucket
	anonymous bool   // requests have no credentials
	whole     bool   // objects are uploaded by one request
	sign      string // how to get credentials
}

// String implements place.
func (s *s3) String() string { return s.url }

// inside implements place.
func (s *s3) inside(name string) place {
	other := *s
	other.key = path.Join(s.key, name)
	other.url = s.object(other.key)
	return &other
}

// named returns the URL of an object of the folder.
func (s *s3) named(name string) string {
	if name == "" {
		return s.url
	}
	return s.url + "/" + name
}

// object returns the URL of an object of the bucket.
func (s *s3) object(key string) string {
	scheme, _, _ := strings.Cut(s.url, "://")
	return scheme + "://" + s.bucket + "/" + key
}

// errNoBucket is wrapped by errors about a bucket that does not exist.
var errNoBucket = fmt.Errorf("%w: there is no such bucket", fs.ErrNotExist)

const (
	signAmazon = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
	signGoogle = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"
)

// roleTimeout is the time within which a machine of a cloud tells its role. Other machines have no such address.
const roleTimeout = 2 * time.Second

// newS3 returns the place of an s3 URL. It takes credentials from AWS_ACCESS_KEY_ID and the variables beside it,
// the shared credentials file, or, without another endpoint, the role of the machine, in this order. Without any,
// requests are anonymous.
func newS3(_ context.Context, o opener, u *url.URL) (place, error) {
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if endpoint == "" && !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		providers = append(providers, &credentials.IAM{Client: &http.Client{Timeout: roleTimeout}})
	}
	chain := credentials.NewChainCredentials(providers)
	value, err := chain.GetWithContext(nil)
	if err != nil {
		return nil, fmt.Errorf("%s: credentials: %w", WithoutQuery(u.String()), err)
	}
	s := &s3{opener: o, anonymous: value.AccessKeyID == "", sign: signAmazon}
	if s.anonymous {
		chain = nil
	}
	return s.connect(u, cmp.Or(endpoint, "https://s3.amazonaws.com"), "AWS_ENDPOINT_URL", minio.Options{Creds: chain,
		Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")), Transport: ranges.Transport{}})
}

// newGoogle returns the place of a gs URL. It uses application default credentials, or, without any, anonymous
// requests. STORAGE_EMULATOR_HOST names another server, which needs none.
func newGoogle(ctx context.Context, o opener, u *url.URL) (place, error) {
	const scope = "https://www.googleapis.com/auth/devstorage.read_write"
	endpoint, transport := os.Getenv("STORAGE_EMULATOR_HOST"), http.RoundTripper(native{ranges.Transport{}})
	s := &s3{opener: o, anonymous: true, sign: signGoogle, whole: true}
	if endpoint == "" {
		found, err := google.FindDefaultCredentials(ctx, scope)
		if err == nil {
			transport = &oauth2.Transport{Source: found.TokenSource, Base: transport}
		} else {
			s.sign += fmt.Sprintf(" (%v)", err)
		}
		s.anonymous = err != nil
	} else if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	return s.connect(u, cmp.Or(endpoint, "https://storage.googleapis.com"), "STORAGE_EMULATOR_HOST",
		minio.Options{Creds: credentials.NewStatic("", "", "", credentials.SignatureAnonymous), Region: "auto", Transport: transport})
}

// native translates the headers of S3 into those that Google Cloud Storage documents
// (cloud.google.com/storage/docs/xml-api/reference-headers): the metadata, and the condition of uploads. Others of S3 it removes.
type native struct{ http.RoundTripper }

// impossible is the version of no object: generations of Google Cloud Storage are times in microseconds.
const impossible = "1"

const amazonMeta, googleMeta = "X-Amz-Meta-", "X-Goog-Meta-"

// RoundTrip implements [http.RoundTripper].
func (n native) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for key, values := range r.Header {
		if name, ok := strings.CutPrefix(key, amazonMeta); ok {
			r.Header[googleMeta+name] = values
		}
	}
	maps.DeleteFunc(r.Header, func(key string, _ []string) bool { return strings.HasPrefix(key, "X-Amz-") })
	switch {
	case r.Header.Get("If-None-Match") == "*":
		r.Header.Del("If-None-Match")
		r.Header.Set("X-Goog-If-Generation-Match", "0")
	case r.Method == http.MethodPut && r.Header.Get("If-Match") != "":
		r.Header.Del("If-Match")
		r.Header.Set("X-Goog-If-Generation-Match", impossible)
	}
	response, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	for key, values := range maps.Clone(response.Header) {
		if name, ok := strings.CutPrefix(key, googleMeta); ok {
			response.Header[amazonMeta+name] = values
		}
	}
	return response, nil
}

// connect sets the place and the client of s. variable names the endpoint in errors.
func (s *s3) connect(u *url.URL, endpoint, variable string, options minio.Options) (place, error) {
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || strings.Trim(at.Path, "/") != "" {
		return nil, fmt.Errorf("%s: got %q, want a URL such as https://HOST:PORT", variable, endpoint)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: the name of an object with ? or # is unsupported", WithoutQuery(u.String()))
	}
	s.bucket, s.key = u.Host, strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	if path.Clean("/"+s.key) != "/"+s.key {
		return nil, fmt.Errorf("%s: the name of an object with //, . or .. between slashes is unsupported", WithoutQuery(u.String()))
	}
	s.url = strings.TrimRight(u.Scheme+"://"+s.bucket+"/"+s.key, "/")
	options.Secure, options.MaxRetries = at.Scheme == "https", 1 // try repeats
	if s.core, err = minio.NewCore(at.Host, &options); err != nil {
		return nil, fmt.Errorf("%s: %w", s.url, err)
	}
	return s, nil
}

// list implements place. After a failure it continues after the last object.
func (s *s3) list(ctx context.Context) (objects []object, err error) {
	options := minio.ListObjectsOptions{Prefix: s.key, Recursive: true}
	if s.key != "" {
		options.Prefix += "/"
	}
	err = s.retry.Do(ctx, s.url, func() (progress bool, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the listing
		for info := range s.core.Client.ListObjects(ctx, s.bucket, options) {
			if info.Err != nil {
				return progress, s.failed(info.Err)
			}
			progress, options.StartAfter = true, info.Key
			name := strings.TrimPrefix(info.Key, options.Prefix)
			switch {
			case strings.HasSuffix(info.Key, "/") && info.Size == 0: // a folder, as consoles create it
				continue
			case !ranges.ValidName(name):
				return false, ranges.Permanent{Err: fmt.Errorf("the object %.120q could lead out of its folder, or has control characters: rename it",
					name)}
			case info.Size < 0:
				return false, ranges.Permanent{Err: fmt.Errorf("%s: the store gives the size %d", name, info.Size)}
			case len(objects) == mostObjects:
				return false, ranges.Permanent{Err: fmt.Errorf("there are more than %d objects: name the folder of one checkpoint", mostObjects)}
			}
			objects = append(objects, object{name, info.Size, unquoted(info.ETag)})
		}
		return progress, ctx.Err()
	})
	return objects, err
}

// unquoted returns an ETag without quotes.
func unquoted(etag string) string { return strings.Trim(etag, `"`) }

// stat implements place.
func (s *s3) stat(ctx context.Context) (o object, err error) {
	err = s.try(ctx, s.url, func() error {
		info, err := s.core.Client.StatObject(ctx, s.bucket, s.key, minio.StatObjectOptions{})
		if err != nil {
			return s.failed(err)
		}
		o = object{"", info.Size, unquoted(info.ETag)}
		return nil
	})
	return o, err
}

// read implements place.
func (s *s3) read(ctx context.Context, o object, off, n int64) (*answer, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(off, off+n-1); err != nil {
		return nil, ranges.Permanent{Err: err}
	}
	if o.version != "" {
		if err := options.SetMatchETag(o.version); err != nil {
			return nil, ranges.Permanent{Err: err}
		}
	}
	body, info, header, err := s.core.GetObject(ctx, s.bucket, path.Join(s.key, o.name), options)
	if err != nil {
		return nil, s.failed(err)
	}
	return &answer{ReadCloser: body, header: header, partial: header.Get("Content-Range") != "", version: unquoted(info.ETag)}, nil
}

// failed describes an error of a request.
func (s *s3) failed(err error) error {
	e, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		if u, ok := errors.AsType[*url.Error](err); ok {
			return u.Err // the connection, without the URL
		}
		return err
	}
	permanent := func(format string, args ...any) error { return ranges.Permanent{Err: fmt.Errorf(format, args...)} }
	status := fmt.Sprintf("the store responded %s", cmp.Or(e.Code, fmt.Sprint(e.StatusCode)))
	switch {
	case e.Code == minio.NoSuchBucket:
		return permanent("%w: check the name %q and the endpoint", errNoBucket, s.bucket)
	case e.StatusCode == http.StatusPreconditionFailed, e.StatusCode == http.StatusConflict:
		return ranges.Permanent{Err: errChanged}
	case e.StatusCode == http.StatusNotFound:
		return permanent("%w: %s: check the name", fs.ErrNotExist, status)
	case (e.StatusCode == http.StatusForbidden || e.StatusCode == http.StatusUnauthorized) && s.anonymous:
		return permanent("%w: %s without credentials: %s", fs.ErrPermission, status, s.sign)
	case e.StatusCode == http.StatusForbidden || e.StatusCode == http.StatusUnauthorized:
		return permanent("%w: %s: the credentials do not permit it", fs.ErrPermission, status)
	case e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500:
		return ranges.Busy{Status: cmp.Or(e.Code, fmt.Sprint(e.StatusCode))}
	}
	return permanent("%s: %s", status, e.Message)
}
