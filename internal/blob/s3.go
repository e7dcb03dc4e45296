package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/arbe-dev/arbe/internal/fault"
)

// partSize is how much of an upload is held in memory and sent in one request, in bytes. It also limits the size of a
// blob, because an upload has at most 10,000 parts.
const partSize = 8 << 20

// S3 is a store in a bucket of an S3-compatible service: Amazon's, MinIO, Ceph, Cloudflare R2 and others.
//
// The client is minio-go instead of the AWS SDK behind gocloud.dev, because it adds 6 MB to a program and the SDK adds
// 26, and this package needs only three operations.
type S3 struct {
	core           minio.Core
	bucket, prefix string
}

// S3Prefix is the start of a bucket's address.
const S3Prefix = "s3://"

// OpenS3 opens the bucket at an address of the form s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION.
// Without an endpoint it is Amazon's; PREFIX is optional. The credential comes from the environment (AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY), the AWS credentials file or the machine's role. OpenS3 makes no connection. A malformed
// address is a [fault.Invalid].
func OpenS3(address string) (*S3, error) {
	wrong := fault.Newf(fault.Invalid, "write it as s3://bucket/prefix?endpoint=https://host:port&region=name", "blob_store: %q is not the address of a bucket", address)
	u, err := url.Parse(address)
	if err != nil || u.Scheme+"://" != S3Prefix || u.Host == "" || u.User != nil {
		return nil, wrong.Because(err)
	}
	query := u.Query()
	for name := range query {
		if name != "endpoint" && name != "region" {
			return nil, wrong
		}
	}
	endpoint, err := endpointOf(query.Get("endpoint"))
	if endpoint == nil {
		return nil, wrong.Because(err)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
		}),
		Secure:     endpoint.Scheme == "https",
		Region:     query.Get("region"),
		MaxRetries: 3,
	})
	if err != nil {
		return nil, wrong.Because(err)
	}
	return &S3{minio.Core{Client: client}, u.Host, prefixOf(u.Path)}, nil
}

func prefixOf(path string) string {
	prefix := strings.Trim(path, "/")
	if prefix == "" {
		return ""
	}
	return prefix + "/"
}

// endpointOf returns the address of a server, or Amazon's. It is nil if text is not an address.
func endpointOf(text string) (*url.URL, error) {
	if text == "" {
		return &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, err
	}
	return u, nil
}

// Check reports whether the bucket can be reached.
func (s *S3) Check(ctx context.Context) error {
	there, err := s.core.BucketExists(ctx, s.bucket)
	if err == nil && !there {
		return fault.Newf(fault.Precondition, "create it, or correct the setting blob_store", "there is no bucket %q", s.bucket)
	}
	return failed(err)
}

func (s *S3) name(key Key) string { return s.prefix + key.String() }

// Put sends a blob of at most one part in one request, and a larger one in parts, because the blob is never in memory
// as a whole, and its size is unknown before its end.
func (s *S3) Put(ctx context.Context, key Key, r io.Reader) error {
	if err := key.check(); err != nil {
		return err
	}
	var first bytes.Buffer
	n, err := io.CopyN(&first, upTo{ctx, r}, partSize)
	body, size := io.Reader(&first), n
	if err == nil {
		body, size = io.MultiReader(&first, upTo{ctx, r}), -1 // for minio, -1 is an unknown size
	} else if !errors.Is(err, io.EOF) {
		return failed(err)
	}
	_, err = s.core.Client.PutObject(ctx, s.bucket, s.name(key), body, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1,
		// Send a plain body with a checksum, because not every S3-compatible service accepts chunked signatures.
		DisableContentSha256: true, SendContentMd5: true,
	})
	return failed(err)
}

// Open reads the object from the offset.
func (s *S3) Open(ctx context.Context, key Key, offset int64) (io.ReadCloser, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	var options minio.GetObjectOptions
	if offset > 0 {
		if err := options.SetRange(offset, 0); err != nil {
			return nil, failed(err)
		}
	}
	body, _, _, err := s.core.GetObject(ctx, s.bucket, s.name(key), options)
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchKey:
		return nil, missing(key).Because(err)
	case minio.InvalidRange: // an offset at or after the end, where there is nothing to read
		return http.NoBody, nil
	}
	if err != nil {
		return nil, failed(err)
	}
	return body, nil
}

// Delete deletes the object and the parts of an unfinished upload, because the service keeps and charges those too.
func (s *S3) Delete(ctx context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	if err := s.core.RemoveObject(ctx, s.bucket, s.name(key), minio.RemoveObjectOptions{}); err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return failed(err)
	}
	if err := s.core.RemoveIncompleteUpload(ctx, s.bucket, s.name(key)); err != nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		return failed(err)
	}
	return nil
}
